"""The service of examples/deploy: no request can stop or slow the others."""

import concurrent.futures
import contextlib
import http.server
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from fairseq_plugins.api import Translator
from tests.conftest import ROOT

httpx = pytest.importorskip("httpx")
for name in ("fastapi", "uvicorn", "prometheus_client"):
    pytest.importorskip(name)

GERMAN = (ROOT / "examples/quickstart/test.de").read_text("utf-8").splitlines()


@contextlib.contextmanager
def running(*more, **options):
    """The address of a running service, and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "uvicorn", "--app-dir", ROOT / "examples/deploy", "service:app"]
    words += ["--port", str(port), "--log-level", "warning", "--timeout-graceful-shutdown", "20"]
    environment = {**os.environ, "TRANSLATE": "tatoeba-de-en"}
    process = subprocess.Popen([*words, *more], env=environment, **options)
    address = f"http://127.0.0.1:{port}"
    try:
        while process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                assert httpx.get(address + "/health").json() == {"models": ["translate"]}
                break
            time.sleep(0.1)
        yield address, process
    finally:
        process.terminate()
        process.wait(1200)


@pytest.fixture(scope="module")
def service():
    with running() as found:
        yield found


def ask(address, texts):
    return httpx.post(address + "/translate", json={"texts": texts}, timeout=600)


def test_a_hundred_clients_get_their_own_answers(service):
    lines = GERMAN[:100]
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda line: ask(service[0], [line, ""]), lines))
    assert {each.status_code for each in answers} == {200}
    found = [each.json()["texts"] for each in answers]
    assert all(empty == "" for _, empty in found)
    expected = Translator("tatoeba-de-en").translate(lines)
    # 8-bit products depend a little on the batch (see the page)
    assert sum(best == other for (best, _), other in zip(found, expected)) >= 90


@pytest.mark.parametrize(
    "body, status",
    [
        (b"", 422),
        (b"{", 422),
        (b"[" * 100_000, 422),
        (b"\xff\xfe", 422),
        (random.Random(1).randbytes(200), 422),
        (b'{"texts": "a"}', 422),
        (b'{"texts": [1]}', 422),
        (b'{"texts": null}', 422),
        (b'{"texts": []}', 200),
        (json.dumps({"texts": ["a"] * 101}).encode(), 422),
        (json.dumps({"texts": ["a" * 20_001]}).encode(), 422),
        (b"x" * (2 << 20), 413),
    ],
)
def test_a_wrong_request_is_told(service, body, status):
    assert httpx.post(service[0] + "/translate", content=body).status_code == status


def test_clients_that_misbehave_do_not_slow_the_others(service):
    """One sends 100 MB, some never read, and some never end their request."""
    address = ("127.0.0.1", int(service[0].rpartition(":")[2]))
    head = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            slow = stack.enter_context(socket.create_connection(address))
            slow.sendall(head % 100 + b"{")
            deaf = stack.enter_context(socket.create_connection(address))
            body = json.dumps({"texts": GERMAN[:3]}).encode()
            deaf.sendall((head % len(body) + body) * 20)
        large = stack.enter_context(socket.create_connection(address))
        with contextlib.suppress(ConnectionError):
            large.sendall(head % (100 << 20))
            for _ in range(100):
                large.sendall(b"x" * (1 << 20))
        assert large.recv(100).startswith(b"HTTP/1.1 413 ")
        assert ask(service[0], ["Guten Morgen!"]).json() == {"texts": ["Good morning."]}


def test_unknown_paths_and_the_page(service):
    assert httpx.post(service[0] + "/summarize", json={"texts": ["a"]}).status_code == 404
    assert "<textarea" in httpx.get(service[0] + "/").text
    metrics = httpx.get(service[0] + "/metrics").text
    assert 'answers_total{status="404"}' in metrics and "latency_seconds_count" in metrics


def test_workers_answer_what_they_began_before_a_stop():
    """The body of each request follows once the service reads it and both workers stop."""
    body = json.dumps({"texts": GERMAN[:4]}).encode()
    head = "POST /translate HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\n"
    more = ["--workers", "2", "--timeout-graceful-shutdown", "600", "--log-level", "info"]
    log = {"stderr": subprocess.PIPE}
    with running(*more, **log) as (address, process), contextlib.ExitStack() as stack:
        place, asked = ("127.0.0.1", int(address.rpartition(":")[2])), []
        for _ in range(10):
            client = stack.enter_context(socket.create_connection(place))
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
            asked.append(stack.enter_context(client.makefile("rwb")))
            assert asked[-1].readline().startswith(b"HTTP/1.1 100 ") and asked[-1].readline()
        process.terminate()
        stopping = (line for line in process.stderr if b"Shutting down" in line)
        assert next(stopping) and next(stopping)
        for client in asked:
            client.write(body)
            client.flush()
        for client in asked:
            assert client.readline().startswith(b"HTTP/1.1 200 ")
            assert len(json.loads(client.read().partition(b"\r\n\r\n")[2])["texts"]) == 4
        assert process.wait(1200) in (0, -signal.SIGTERM)
        with pytest.raises(httpx.ConnectError):
            ask(address, ["a"])


def test_the_page_in_a_browser(service):
    """In Chromium, with a click on the first button, behind a server that adds the click."""
    browser = shutil.which("chromium") or pytest.skip("needs chromium")
    typed = (
        "<script>given.value = 'Guten Morgen!'; document.querySelector('button').click()</script>"
    )

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer("text/html", httpx.get(service[0] + "/").text + typed)

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found = httpx.post(service[0] + self.path, content=body, timeout=600)
            self.answer("application/json", found.text)

        def answer(self, kind, text):
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(text.encode())

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
        words += ["--virtual-time-budget=20000", f"http://127.0.0.1:{server.server_port}/"]
        found = subprocess.run(words, capture_output=True, text=True, timeout=120).stdout
        server.shutdown()
    assert '<pre id="found">Good morning.</pre>' in found
