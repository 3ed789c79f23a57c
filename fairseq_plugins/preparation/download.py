"""Files from the network: resumed where they broke off, and checked before anything reads them."""

import fcntl
import hashlib
import http.client
import os
import re
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, BinaryIO, Optional, Tuple, Union

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.preparation.progress import progress_bar

BLOCK = 1 << 18
TIMEOUT = 60.0  # seconds without a byte until the connection is given up
ATTEMPTS = 6  # in a row that bring no new byte
LONGEST_PAUSE = 60.0
PASSING = (408, 425, 429, 500, 502, 503, 504)  # statuses that another attempt may not meet


class DownloadError(ConfigurationError):
    """A file that cannot be had, or is not the one expected; the message says what to do."""


class _Interrupted(Exception):
    """The transfer broke off and may be taken up again."""


def digest(path: Union[str, Path], algorithm: str) -> str:
    """The checksum of a file, in hexadecimal."""
    state = hashlib.new(algorithm)
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            state.update(block)
    return state.hexdigest()


def check(path: Union[str, Path], size: Optional[int], checksum: Optional[str]) -> None:
    """Compare a file with its expected size and checksum.

    Args:
        path: the file.
        size: bytes, or None if any size will do.
        checksum: `"md5:..."`, `"sha256:..."` or another name known to hashlib; None for no check.

    Raises:
        DownloadError: the file is missing or another one, or `checksum` is of no known kind.
    """
    path = Path(path)
    algorithm, expected = _parse(checksum)
    if not path.is_file():
        raise DownloadError("{} does not exist, or is not a file".format(path))
    actual_size = path.stat().st_size
    if size is not None and actual_size != size:
        raise DownloadError("{} has {:,} bytes instead of {:,}".format(path, actual_size, size))
    if algorithm:
        actual = digest(path, algorithm)
        if actual != expected:
            raise DownloadError(
                "{} has the {} checksum {} instead of {}".format(path, algorithm, actual, expected)
            )


def fetch(
    url: str,
    destination: Union[str, Path],
    size: Optional[int] = None,
    checksum: Optional[str] = None,
    attempts: int = ATTEMPTS,
    pause: float = 1.0,
) -> Path:
    """Download `url` to `destination`, unless the right file is there already.

    The bytes go to `destination.part`, which takes the final name only once size and checksum are
    right. A broken transfer goes on where it stopped, in this run after growing pauses, and in the
    next run if there is a checksum to tell whether both parts fit together.

    Args:
        url: http, https or file.
        destination: the file to write; its folder is made.
        size: its bytes, or None if unknown.
        checksum: as in `check`.
        attempts: how often in a row to try without getting any new byte.
        pause: seconds before the second attempt, doubled after each further failure.

    Returns:
        `destination`.

    Raises:
        DownloadError: the file cannot be had, is not the one expected, or another process is
            downloading it.
    """
    destination = Path(destination)
    _parse(checksum)
    if destination.exists():
        try:
            check(destination, size, checksum)
        except DownloadError as error:
            raise DownloadError(
                "{}: remove it to download it again, or give the checksum it should have".format(
                    error
                )
            ) from None
        return destination

    part = destination.with_name(destination.name + ".part")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        file = open(part, "ab")
    except OSError as error:
        raise DownloadError("cannot write {}: {}".format(part, error.strerror)) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DownloadError("another process is downloading {}".format(part)) from None
        if checksum is None:
            file.truncate(0)
        resumed = os.fstat(file.fileno()).st_size > 0
        _transfer(url, file, size, attempts, pause)
        try:
            check(part, size, checksum)
        except DownloadError:
            if resumed:  # the beginning of an earlier run may be at fault
                file.truncate(0)
                _transfer(url, file, size, attempts, pause)
        try:
            check(part, size, checksum)
        except DownloadError as error:
            os.unlink(part)
            raise DownloadError(
                "what {} sends is not the file expected, and was removed: {}. If the publisher "
                "changed it, give the checksum it has now".format(url, error)
            ) from None
        os.fsync(file.fileno())
        os.replace(part, destination)
    return destination


def _parse(checksum: Optional[str]) -> Tuple[str, str]:
    if checksum is None:
        return "", ""
    algorithm, _, expected = checksum.partition(":")
    known = algorithm in hashlib.algorithms_available
    if not known or len(expected) != 2 * hashlib.new(algorithm).digest_size:
        raise DownloadError(
            "checksum '{}' is not of the form md5:<32 hexadecimal digits> or sha256:<64>".format(
                checksum
            )
        )
    return algorithm, expected.lower()


def _transfer(url: str, file: BinaryIO, size: Optional[int], attempts: int, pause: float) -> None:
    """Append what is missing to `file`, in as many connections as it takes."""
    failures = 0
    with progress_bar(
        description=Path(file.name).stem,
        total=size,
        unit="B",
        unit_scale=True,
        unit_divisor=1024,
    ) as bar:
        while True:
            before = os.fstat(file.fileno()).st_size
            try:
                _one_connection(url, file, size, bar)
                return
            except _Interrupted as error:
                now = os.fstat(file.fileno()).st_size
                failures = 1 if now > before else failures + 1
                if failures >= attempts:
                    raise DownloadError(
                        "{} cannot be downloaded: {} ({} attempts). {:,} bytes are kept: run the "
                        "same command again to go on, or download it another way and give the "
                        "file".format(url, error, failures, now)
                    ) from None
                wait = min(LONGEST_PAUSE, pause * 2 ** (failures - 1))
                bar.clear()
                print(
                    "{} after {:,} bytes: trying again in {:g} s".format(error, now, wait),
                    file=sys.stderr,
                )
                time.sleep(wait)


def _one_connection(url: str, file: BinaryIO, size: Optional[int], bar: Any) -> None:
    """Request what is missing and append what comes.

    Raises:
        _Interrupted: less came than was announced, or no connection.
        DownloadError: the server refuses, or the disk is full.
    """
    start = os.fstat(file.fileno()).st_size
    if size is not None and start >= size:
        if start == size:
            return
        file.truncate(0)
        start = 0
    headers = {"User-Agent": "fairseq-plugins", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = "bytes={}-".format(start)
    try:
        response = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT
        )
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and start:  # nothing after what is here: the checksum will tell
            total = (error.headers.get("Content-Range") or "").rpartition("/")[2]
            if total != str(start):
                file.truncate(0)
                raise _Interrupted("the file here is longer than the server's") from None
            return
        reason = "the server answers {} {}".format(error.code, error.reason)
        if error.code in PASSING:
            raise _Interrupted(reason) from None
        raise DownloadError(
            "{} cannot be downloaded: {}. Download it another way and give the file".format(
                url, reason
            )
        ) from None
    except urllib.error.URLError as error:
        reason = "no connection ({})".format(error.reason)
        if isinstance(error.reason, (FileNotFoundError, ssl.SSLCertVerificationError)):
            raise DownloadError("{} cannot be downloaded: {}".format(url, reason)) from None
        raise _Interrupted(reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted("no connection ({})".format(error or type(error).__name__)) from None
    except ValueError as error:
        raise DownloadError("'{}' is not a URL: {}".format(url, error)) from None

    with response:
        if start and not _continues(response, start):
            file.truncate(0)  # the server sends everything again
            start = 0
        length = response.headers.get("Content-Length")
        end = start + int(length) if length is not None else None
        bar.total = size or end
        bar.n = bar.initial = start
        bar.refresh()
        while True:
            try:
                block = response.read(BLOCK)
            except (OSError, http.client.HTTPException) as error:
                raise _Interrupted("connection lost ({})".format(error)) from None
            if not block:
                break
            try:
                file.write(block)
                file.flush()
            except OSError as error:
                raise DownloadError(
                    "cannot write {}: {}".format(file.name, error.strerror)
                ) from None
            bar.update(len(block))
    if end is not None and os.fstat(file.fileno()).st_size < end:
        raise _Interrupted("connection lost")


def _continues(response: Any, start: int) -> bool:
    """Whether the server sends the bytes from `start` on."""
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range") or "")
    return found is not None and int(found.group(1)) == start and response.status == 206
