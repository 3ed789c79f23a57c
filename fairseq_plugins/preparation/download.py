"""Downloads that resume after an interruption and are verified before use."""

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
from fairseq_plugins.files import digest, lock, without_links
from fairseq_plugins.progress import progress_bar

BLOCK = 1 << 18
TIMEOUT = 60.0  # seconds without data until the connection is closed
ATTEMPTS = 6  # in a row without progress
LONGEST_PAUSE = 60.0  # seconds
PASSING = (408, 416, 425, 429, 500, 502, 503, 504)  # HTTP statuses worth another attempt
DIGITS = {"md5": 32, "sha1": 40, "sha256": 64, "sha512": 128}


class DownloadError(ConfigurationError):
    """The download failed, or the file is not as expected. The message says what to do."""


class _Interrupted(Exception):
    """The transfer broke off and may be resumed."""


def parse_checksum(checksum: str) -> Tuple[str, str]:
    """The algorithm and the digits of a checksum such as `"md5:..."`.

    Raises:
        DownloadError: the algorithm is not in `DIGITS`, or the digits do not fit it.
    """
    algorithm, _, digits = checksum.partition(":")
    if len(digits) != DIGITS.get(algorithm) or not re.fullmatch("[0-9a-fA-F]*", digits):
        raise DownloadError(
            f"checksum '{checksum}': give md5:<32 hexadecimal digits>, sha1:<40>, sha256:<64> or "
            "sha512:<128>"
        )
    return algorithm, digits.lower()


def check(path: Union[str, Path], size: Optional[int], checksum: Optional[str]) -> None:
    """Compare a file with its expected size and checksum.

    Args:
        path: the file.
        size: bytes, or None for any size.
        checksum: as `parse_checksum` takes it; None for no check.

    Raises:
        DownloadError: the file is missing or differs, or the checksum's algorithm is unknown.
        ConfigurationError: the file cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        raise DownloadError(f"{path} does not exist or is not a file")
    actual_size = path.stat().st_size
    if size is not None and actual_size != size:
        raise DownloadError(f"{path} has {actual_size:,} bytes instead of {size:,}")
    if checksum is not None:
        algorithm, expected = parse_checksum(checksum)
        actual = digest(path, algorithm)
        if actual != expected:
            raise DownloadError(
                f"{path} has the {algorithm} checksum {actual} instead of {expected}"
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

    The bytes go to `destination.part`, which is renamed only if size and checksum are right. An
    interrupted transfer resumes in this run, after growing pauses, and in the next run if a
    checksum can verify the result.

    Args:
        url: http, https or file.
        destination: the file to write; its folder is created.
        size: the size in bytes, or None if unknown; no more bytes are read.
        checksum: as in `check`.
        attempts: number of attempts in a row that may make no progress.
        pause: seconds before the second attempt, doubled after each further failure.

    Returns:
        `destination`.

    Raises:
        DownloadError: the file cannot be downloaded or written, is not the expected one, or another
            process is downloading it.
    """
    destination = Path(destination)
    if checksum is not None:
        parse_checksum(checksum)
    if destination.exists():
        try:
            check(destination, size, checksum)
        except DownloadError as error:
            raise DownloadError(
                f"{error}: remove it to download it again, or give the checksum that it should have"
            ) from None
        return destination

    part = destination.with_name(destination.name + ".part")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "ab", buffering=0, opener=without_links) as file:
            try:
                lock(file, part, "download")
            except BlockingIOError:
                raise DownloadError(f"another process is downloading {part}") from None
            if checksum is None:  # the part of an earlier run could not be verified
                file.truncate(0)
            try:
                _transfer(url, file, size, checksum, attempts, pause)
            finally:
                if not os.fstat(file.fileno()).st_size:
                    part.unlink()
            os.fsync(file.fileno())
            os.replace(part, destination)
    except OSError as error:
        raise DownloadError(f"cannot write {part}: {error.strerror}: rerun to resume") from None
    return destination


def _transfer(
    url: str,
    file: BinaryIO,
    size: Optional[int],
    checksum: Optional[str],
    attempts: int,
    pause: float,
) -> None:
    """Append to `file` until it is complete, over several connections if necessary."""
    part = Path(file.name)
    furthest, failures = part.stat().st_size, 0
    earlier = furthest > 0  # from an earlier run: may be of another file
    with progress_bar(
        description=part.stem, total=size, unit="B", unit_scale=True, unit_divisor=1024
    ) as bar:
        while True:
            try:
                whole = _one_connection(url, file, size, bar)
                try:
                    check(part, size, checksum)
                    return
                except DownloadError as error:
                    if not whole:  # the server sent no size, so the file may be incomplete
                        raise _Interrupted("connection lost, or another file") from None
                    file.truncate(0)
                    if not earlier:
                        raise DownloadError(
                            f"{url} sent an unexpected file, which was removed: {error}. "
                            "If the publisher changed it, give its new checksum"
                        ) from None
                    earlier, furthest = False, 0
            except _Interrupted as error:
                here = part.stat().st_size
                failures = 1 if here > furthest else failures + 1
                furthest = max(furthest, here)
                if failures >= attempts:
                    raise DownloadError(
                        f"{url} cannot be downloaded: {error} ({failures} attempts). {here:,} "
                        "bytes are kept: rerun to resume, or download it another way and give the "
                        "file"
                    ) from None
                wait = min(LONGEST_PAUSE, pause * 2 ** (failures - 1))
                bar.clear()
                print(f"{error} after {here:,} bytes: retrying in {wait:g} s", file=sys.stderr)
                time.sleep(wait)


def _one_connection(url: str, file: BinaryIO, size: Optional[int], bar: Any) -> bool:
    """Request the missing bytes and append them.

    Returns:
        Whether the file is known to be complete; False if the server did not send its size.

    Raises:
        _Interrupted: no connection, or fewer bytes than announced.
        DownloadError: the server refuses, or has another file.
    """
    here = os.fstat(file.fileno()).st_size
    if here == size:
        return True
    if size is not None and here > size:
        file.truncate(0)
        here = 0
    response = _request(url, file, here, size)
    if response is None:
        return True
    with response:
        here, total = _extent(url, response, here, size)
        file.truncate(here)
        bar.total, bar.n, bar.initial = total, here, here
        bar.refresh()
        while total is None or here < total:
            try:
                block = response.read(BLOCK if total is None else min(BLOCK, total - here))
            except (OSError, http.client.HTTPException) as error:
                raise _Interrupted(f"connection lost ({error})") from None
            if not block:
                break
            here += len(block)
            bar.update(len(block))
            while block:  # a nearly full disk may write only a part
                block = block[file.write(block) :]
    if total is not None and here < total:
        raise _Interrupted("connection lost")
    return total is not None


def _request(url: str, file: BinaryIO, here: int, size: Optional[int]) -> Any:
    """The server's answer to a request for the bytes from `here`; None if there are no more.

    If `size` is unknown and the server has fewer bytes, or does not say, `file` is emptied for the
    next attempt.

    Raises:
        _Interrupted: no connection, or the server refuses for now.
        DownloadError: the server refuses, or `url` is not a URL.
    """
    headers = {"User-Agent": "fairseq-plugins", "Accept-Encoding": "identity"}
    if here:
        headers["Range"] = f"bytes={here}-"
    try:
        request = urllib.request.Request(url, headers=headers)
        return urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and here:  # the server's file is not longer
            total = _number((error.headers.get("Content-Range") or "").rpartition("/")[2])
            if total == here:
                return None
            if size is None and (total is None or total < here):
                file.truncate(0)
        reason = f"the server answers {error.code} {error.reason}"
        if error.code in PASSING:
            raise _Interrupted(reason) from None
        raise DownloadError(
            f"{url} cannot be downloaded: {reason}. Download it another way and give the file"
        ) from None
    except (ValueError, http.client.InvalidURL) as error:
        raise DownloadError(f"'{url}' is not a URL: {error}") from None
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", error)
        reason = f"no connection ({str(cause) or type(cause).__name__})"
        if isinstance(cause, (FileNotFoundError, ssl.SSLCertVerificationError)):
            raise DownloadError(f"{url} cannot be downloaded: {reason}") from None
        raise _Interrupted(reason) from None


def _extent(url: str, response: Any, here: int, size: Optional[int]) -> Tuple[int, Optional[int]]:
    """Where the bytes of an answer begin (`here` or 0), and the size of the file, if known.

    Raises:
        DownloadError: the server's file has another size.
    """
    length = _number(response.headers.get("Content-Length"))
    resumes = re.match(rf"bytes {here}-[0-9]+/(.*)", response.headers.get("Content-Range", ""))
    if response.getcode() != 206 or not resumes:
        here = 0  # the server sends everything again
    total = _number(resumes.group(1)) if here and resumes else None
    if total is None:
        total = size if length is None else here + length
    if size not in (None, total):
        raise DownloadError(
            f"{url} is not the expected file: it has {total:,} bytes instead of "
            f"{size:,}. If the publisher changed it, give its new checksum"
        )
    return here, total


def _number(text: Optional[str]) -> Optional[int]:
    """A non-negative integer from a header; None if it is missing or malformed."""
    return int(text) if text and re.fullmatch("[0-9]{1,18}", text) else None
