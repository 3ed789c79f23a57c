"""Downloads from a local server that interrupts, refuses or sends another file."""

import copy
import fcntl
import hashlib
import http.server
import io
import os
import resource
import threading

import pytest

from fairseq_plugins.data import download
from fairseq_plugins.data.download import DownloadError, fetch
from fairseq_plugins.errors import ConfigurationError

CONTENT = bytes(range(256)) * 3000
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()
SHA256 = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Sends `content`; each item of `plan` is the fate of one request, then all go well.

    A number from 400 to 599 is the status it is answered with, any other is how many bytes are sent
    before the connection is closed. `length` makes the header Content-Length of the content's.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.ranges = True
        self.length = str
        self.begin = int  # maps the begin of a range that is asked for to the one that is sent
        self.plan = []
        self.requests = []  # the Range of each

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/corpus.tgz"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.requests.append(asked)
        fate = server.plan.pop(0) if server.plan else None
        if fate is not None and 400 <= fate < 600:
            self.send_error(fate)
            return
        content, start = server.content, 0
        if asked and server.ranges:
            start = self.server.begin(asked[len("bytes=") : -1])
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        length = server.length(len(content) - start)
        if length is not None:
            self.send_header("Content-Length", length)
        self.end_headers()
        rest = content[start:]
        try:
            self.wfile.write(rest if fate is None else rest[:fate])
        except OSError:  # nobody reads on
            pass

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "PAUSE", 0.01)
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_file_arrives_whole_and_is_not_fetched_twice(server, tmp_path):
    target = tmp_path / "new" / "corpus.tgz"
    assert fetch(server.url, target, MD5, len(CONTENT)) == target
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == ["corpus.tgz"]
    fetch(server.url, target, SHA256, len(CONTENT))
    assert server.requests == [None]


WHOLE = len(CONTENT)
# what becomes of the server, of the file of an earlier run, the size given, and ranges asked for
ARRIVES = {
    "interrupted": ({"plan": [1000, 2000, 503]}, 0, WHOLE, [1000, 3000, 3000]),
    "another range than asked for": ({"plan": [1000], "begin": lambda asked: 0}, 0, WHOLE, [1000]),
    "no range": ({"plan": [416, 416]}, 0, WHOLE, [0, 0]),
    "a part of another file": ({}, 1000, None, [1000, 0]),
    "another file of the size": ({}, WHOLE, None, [WHOLE, 0]),
    "a larger file": ({}, WHOLE + 1, None, [WHOLE + 1, 0]),
    "a reply that never ends": (  # far more than sockets buffer
        {"content": CONTENT + bytes(1 << 26), "length": lambda _: None}, 0, WHOLE, [],
    ),
    **{
        f"a cut reply of the length {length}, {size}": (
            {"plan": [1000], "length": lambda _, length=length: length}, 0, size, [1000],
        )
        for length in (None, "many", "-5", "12, 12")
        for size in (None, WHOLE)
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", ARRIVES)
def test_the_file_arrives(server, tmp_path, kind, capsys):
    faults, part, size, ranges = ARRIVES[kind]
    vars(server).update(copy.deepcopy(faults))
    if part:
        (tmp_path / "corpus.tgz.part").write_bytes(b"x" * part)
    fetch(server.url, tmp_path / "corpus.tgz", MD5, size)
    assert (tmp_path / "corpus.tgz").read_bytes() == CONTENT
    asked = [f"bytes={start}-" if start else None for start in ranges]
    assert server.requests == asked if part else server.requests == [None, *asked]
    if kind == "interrupted":
        said = capsys.readouterr().err
        assert "connection lost after 1,000 bytes: retrying" in said and "503" in said


def test_the_next_run_resumes(server, tmp_path, monkeypatch):
    server.plan = [1000]
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    with pytest.raises(DownloadError, match="1,000 bytes are kept: rerun to resume"):
        fetch(server.url, tmp_path / "corpus.tgz", MD5)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.tgz.part"]
    fetch(server.url, tmp_path / "corpus.tgz", MD5)
    assert (tmp_path / "corpus.tgz").read_bytes() == CONTENT
    assert server.requests == [None, "bytes=1000-"]


def test_a_file_is_written_by_one_process(server, tmp_path):
    with open(tmp_path / "corpus.tgz.part", "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConfigurationError, match="another download of corpus.tgz is running"):
            fetch(server.url, tmp_path / "corpus.tgz", MD5)
    assert server.requests == []


def test_a_file_is_on_disk_before_it_has_its_name(server, tmp_path, monkeypatch):
    """Also where the system takes only a part of what is written."""
    done, fsync, replace = [], os.fsync, os.replace

    class Slow(io.FileIO):
        def write(self, block):
            return super().write(block[:100000])

    monkeypatch.setattr(download, "ATTEMPTS", 1)
    monkeypatch.setattr(download, "open", lambda path, mode, **how: Slow(path, mode), raising=False)
    monkeypatch.setattr(os, "fsync", lambda file: done.append("fsync") or fsync(file))
    monkeypatch.setattr(os, "replace", lambda *names: done.append("rename") or replace(*names))
    fetch(server.url, tmp_path / "corpus.tgz", MD5, len(CONTENT))
    assert done == ["fsync", "rename"]
    assert (tmp_path / "corpus.tgz").read_bytes() == CONTENT


@pytest.mark.parametrize("expected", [{"checksum": MD5}, {"size": len(CONTENT), "checksum": MD5}])
def test_another_file_than_expected_is_never_left(server, tmp_path, expected):
    server.content = CONTENT[:-1] if "size" in expected else CONTENT[:-1] + b"x"
    with pytest.raises(DownloadError, match=r"(?s)(an un|not the )expected"):
        fetch(server.url, tmp_path / "corpus.tgz", **expected)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_kept(server, tmp_path):
    (tmp_path / "corpus.tgz").write_bytes(b"mine")
    with pytest.raises(DownloadError, match="remove it to download it again"):
        fetch(server.url, tmp_path / "corpus.tgz", MD5)
    assert (tmp_path / "corpus.tgz").read_bytes() == b"mine"
    assert server.requests == []


def test_alternating_partial_replies_and_refusals_end(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "ATTEMPTS", 4)
    server.plan = [len(CONTENT) // 2, 416] * 20
    with pytest.raises(DownloadError, match=r"416 .*\(4 attempts\)"):
        fetch(server.url, tmp_path / "corpus.tgz", MD5)
    assert len(server.requests) < 10


def test_a_login_page_is_not_taken_for_the_file(server, tmp_path):
    """As networks with a login page do."""
    (tmp_path / "corpus.tgz.part").write_bytes(CONTENT[:5000])
    server.content, server.ranges = b"<html>log in</html>", False
    with pytest.raises(DownloadError, match="it has 19 bytes instead of 768,000"):
        fetch(server.url, tmp_path / "corpus.tgz", MD5, len(CONTENT))
    server.content, server.ranges = CONTENT, True
    fetch(server.url, tmp_path / "corpus.tgz", MD5, len(CONTENT))
    assert server.requests == ["bytes=5000-"] * 2


def test_a_full_disk_keeps_what_it_has(server, tmp_path):
    """The limit stands for the disk: the kernel takes a part of a write, then refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300001, hard))
    try:
        with pytest.raises(DownloadError, match=r"cannot write .*corpus.tgz.part: .*: rerun to"):
            fetch(server.url, tmp_path / "corpus.tgz", MD5, len(CONTENT))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "corpus.tgz.part").read_bytes() == CONTENT[:300001]
    fetch(server.url, tmp_path / "corpus.tgz", MD5, len(CONTENT))
    assert (tmp_path / "corpus.tgz").read_bytes() == CONTENT
    assert server.requests[1:] == ["bytes=300001-"]


def test_a_link_in_the_place_of_the_part_is_not_followed(server, tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "corpus.tgz.part").symlink_to(tmp_path / "mine")
    with pytest.raises(ConfigurationError, match="corpus.tgz.part is a link: remove it"):
        fetch(server.url, tmp_path / "corpus.tgz", MD5, len(CONTENT))
    assert (tmp_path / "mine").read_text() == "mine"
