"""Downloads that resume after an interruption and are verified before use.

Libraries that are well kept verify files, as pooch does, but begin an interrupted one anew.
"""

import http.client
import os
import re
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, BinaryIO

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import PART, alone_in, digest
from fairseq_plugins.system.progress import progress_bar

BLOCK = 1 << 18
TIMEOUT = 60.0  # seconds without data until the connection is closed
ATTEMPTS = 6  # in a row without progress
# seconds before the second attempt, doubled after each further failure
PAUSE, LONGEST_PAUSE = 1.0, 60.0
PASSING = (408, 416, 425, 429, 500, 502, 503, 504)  # HTTP statuses worth another attempt


class DownloadError(ConfigurationError):
    """The download failed, or the file is not as expected. The message says what to do."""


class _Interrupted(Exception):
    """The transfer broke off and may be resumed."""


def check(path: Path, checksum: str, size: int | None = None) -> None:
    """Compare a file with its expected checksum and size.

    Args:
        path: the file.
        checksum: such as "md5:..." or "sha256:...".
        size: bytes, or None for any size.

    Raises:
        DownloadError: the file is missing or differs.
        ConfigurationError: the file cannot be read.
    """
    if not path.is_file():
        raise DownloadError(f"{path} does not exist or is not a file")
    actual_size = path.stat().st_size
    if size not in (None, actual_size):
        raise DownloadError(f"{path} has {actual_size:,} bytes instead of {size:,}")
    algorithm, _, expected = checksum.partition(":")
    actual = digest(path, algorithm)
    if actual != expected:
        raise DownloadError(f"{path} has the {algorithm} checksum {actual} instead of {expected}")


def fetch(url: str, destination: Path, checksum: str, size: int | None = None) -> Path:
    """Download `url` to `destination`, unless the right file is there already.

    The bytes go to `destination.part`, which is renamed only if size and checksum are right. An
    interrupted transfer resumes in this run, after growing pauses, and in the next run.

    Args:
        url: http, https or file.
        destination: the file to write; its folder is created.
        checksum: as in `check`.
        size: the size in bytes, or None if unknown; no more bytes are read.

    Returns:
        `destination`.

    Raises:
        DownloadError: the file cannot be downloaded, or is not the expected one.
        ConfigurationError: it cannot be written, or another process is downloading it.
    """
    if destination.exists():
        try:
            check(destination, checksum, size)
        except DownloadError as error:
            raise DownloadError(f"{error}: remove it to download it again") from None
        return destination
    part = destination.with_name(destination.name + PART)
    alone = alone_in(destination.parent, f"download of {destination.name}", 0, part.name)
    try:
        with alone, open(part, "ab", buffering=0) as file:
            try:
                _transfer(url, file, checksum, size)
            finally:
                if not os.fstat(file.fileno()).st_size:
                    part.unlink()
            os.fsync(file.fileno())
            os.replace(part, destination)
    except OSError as error:
        raise DownloadError(f"cannot write {part}: {error.strerror}: rerun to resume") from None
    return destination


def _transfer(url: str, file: BinaryIO, checksum: str, size: int | None) -> None:
    """Append to `file` until it is complete, over several connections if necessary."""
    part = Path(file.name)
    furthest, failures = part.stat().st_size, 0
    earlier = furthest > 0  # from an earlier run: may be of another file
    with progress_bar(
        description=part.stem, total=size, unit="B", unit_scale=True, unit_divisor=1024
    ) as bar:
        while True:
            try:
                whole = _append(url, file, size, bar)
                try:
                    check(part, checksum, size)
                    return
                except DownloadError as error:
                    if not whole:  # the server sent no size, so the file may be incomplete
                        raise _Interrupted("connection lost, or another file") from None
                    file.truncate(0)
                    if not earlier:
                        raise DownloadError(
                            f"{url} sent an unexpected file, which was removed: {error}"
                        ) from None
                    earlier, furthest = False, 0
            except _Interrupted as error:
                here = part.stat().st_size
                failures = 1 if here > furthest else failures + 1
                furthest = max(furthest, here)
                if failures >= ATTEMPTS:
                    raise DownloadError(
                        f"{url} cannot be downloaded: {error} ({failures} attempts). {here:,} "
                        "bytes are kept: rerun to resume, or download it another way and give the "
                        "file"
                    ) from None
                wait = min(LONGEST_PAUSE, PAUSE * 2 ** (failures - 1))
                bar.clear()
                print(f"{error} after {here:,} bytes: retrying in {wait:g} s", file=sys.stderr)
                time.sleep(wait)


def _append(url: str, file: BinaryIO, size: int | None, bar: Any) -> bool:
    """Request the missing bytes and append them.

    Returns:
        Whether the file is known to be complete; False if the server did not send its size.

    Raises:
        _Interrupted: no connection, or fewer bytes than announced.
        DownloadError: the server refuses, or has a file of another size.
    """
    here = os.fstat(file.fileno()).st_size
    if size is not None and here >= size:
        return True
    with _request(url, file, here) as response:
        rest = re.match(rf"bytes {here}-\d+/(.*)", response.headers.get("Content-Range", ""))
        if response.status != 206 or not rest:
            here = 0  # the server sends everything again
        length = response.headers.get("Content-Length", "")
        total = here + int(length) if length.isdecimal() else size
        if rest and here and rest[1].isdecimal():
            total = int(rest[1])
        if size not in (None, total):
            raise DownloadError(
                f"{url} is not the expected file: it has {total:,} bytes instead of {size:,}"
            )
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


def _request(url: str, file: BinaryIO, here: int) -> Any:
    """The server's answer to a request for the bytes from `here`.

    If it has none there, `file` is emptied for the next attempt.

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
        reason = f"the server answers {error.code} {error.reason}"
        if error.code == 416:
            file.truncate(0)
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
