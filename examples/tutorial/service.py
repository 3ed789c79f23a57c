"""Translate over HTTP: each line of a POST request is a sentence. Run it with a model's folder."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fairseq_plugins import Translator

translator = Translator(sys.argv[1])


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode("utf-8")
        answer = "".join(line + "\n" for line in translator.translate(text.splitlines()))
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.end_headers()
        self.wfile.write(answer.encode("utf-8"))


ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
