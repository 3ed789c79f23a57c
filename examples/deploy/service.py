"""A service that translates and summarizes over HTTP, to copy and change.

    pip install fastapi uvicorn prometheus-client
    TRANSLATE=tatoeba-de-en uvicorn --app-dir examples/deploy service:app --workers 2 \
        --limit-concurrency 500 --timeout-graceful-shutdown 30

TRANSLATE and SUMMARIZE name the models, and TERMS may name a file for `translate --terms`. POST
/translate and /summarize take {"texts": [...]} and answer {"texts": [...]}. Texts of requests that
come while a batch is computed form the next batch. For the metrics of several workers, set
PROMETHEUS_MULTIPROC_DIR to an empty folder.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable

import prometheus_client as prometheus
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import multiprocess

from fairseq_plugins.api import Summarizer, Translator

MOST_BYTES, MOST_TEXTS, MOST_CHARACTERS = 1 << 20, 100, 20_000  # of a request, and of a text
SECONDS = 30.0  # for an answer
BATCH, MOST_WAITING = 64, 2000  # texts
ANSWERS = prometheus.Counter("answers", "Answers by status", ["status"])
LATENCY = prometheus.Histogram("latency_seconds", "Time from a request to its answer")
PAGE = """<!doctype html><meta charset=utf-8><title>Try it</title>
<textarea id=given rows=8 cols=70></textarea><br><pre id=found></pre>
<button onclick="run('translate')">Translate</button>
<button onclick="run('summarize')">Summarize</button>
<script>async function run(path) {
  const body = JSON.stringify({texts: given.value.split('\\n')})
  const answer = await (await fetch(path, {method: 'POST', body})).json()
  found.textContent = answer.texts ? answer.texts.join('\\n') : answer.error
}</script>"""
Waiting = tuple[list[str], asyncio.Future[list[str]]]


class Batcher:
    """Answers requests in batches, one batch at a time."""

    def __init__(self, model: Callable[[list[str]], list[str]]) -> None:
        self.model, self.queue, self.waiting = model, asyncio.Queue[Waiting](), 0

    async def ask(self, texts: list[str]) -> list[str]:
        future = asyncio.get_running_loop().create_future()
        self.waiting += len(texts)
        try:
            self.queue.put_nowait((texts, future))
            return await future
        finally:
            self.waiting -= len(texts)

    async def run(self) -> None:
        while True:
            batch = [await self.queue.get()]
            while not self.queue.empty() and sum(len(texts) for texts, _ in batch) < BATCH:
                batch.append(self.queue.get_nowait())
            batch = [each for each in batch if not each[1].done()]  # others gave up
            await self.answer(batch)

    async def answer(self, batch: list[Waiting]) -> None:
        lines = [text for texts, _ in batch for text in texts]
        try:
            found = iter(await asyncio.to_thread(self.model, lines))
            for texts, future in batch:
                written = [next(found) for _ in texts]
                future.done() or future.set_result(written)
        except Exception as error:
            for texts, future in batch:
                if len(batch) > 1:  # perhaps it is the fault of one: it may not end the others
                    await self.answer([(texts, future)])
                else:
                    future.done() or future.set_exception(error)


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    models: dict[str, Callable[[list[str]], list[str]]] = {}
    if "TRANSLATE" in os.environ:
        translator = Translator(os.environ["TRANSLATE"], terms=os.environ.get("TERMS"))
        models["translate"] = translator.translate
    if "SUMMARIZE" in os.environ:
        summarize = Summarizer(os.environ["SUMMARIZE"]).summarize
        models["summarize"] = lambda texts: [" ".join(s.summary) for s in summarize(texts)]
    app.state.batchers = {name: Batcher(model) for name, model in models.items()}
    tasks = [asyncio.create_task(batcher.run()) for batcher in app.state.batchers.values()]
    yield
    for task in tasks:
        task.cancel()


app = FastAPI(lifespan=lifespan)


async def answer(path: str, request: Request) -> tuple[int, dict]:
    """The status and the content of the answer."""
    batcher = app.state.batchers.get(path)
    if batcher is None:
        return 404, {"error": f"no model for {path}"}
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            return 413, {"error": f"more than {MOST_BYTES:,} bytes"}
    try:
        texts = json.loads(body)["texts"]
        fits = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        fits = fits and len(texts) <= MOST_TEXTS and all(len(t) <= MOST_CHARACTERS for t in texts)
    except (ValueError, KeyError, TypeError, RecursionError):
        fits = False
    if not fits:
        return 422, {
            "error": f'give {{"texts": [...]}}, at most {MOST_TEXTS} of {MOST_CHARACTERS:,}'
        }
    if batcher.waiting + len(texts) > MOST_WAITING:
        return 503, {"error": "too many requests: try again later"}
    return 200, {"texts": await batcher.ask(texts)}


@app.post("/{path}")
async def post(path: str, request: Request) -> JSONResponse:
    with LATENCY.time():
        try:
            status, content = await asyncio.wait_for(answer(path, request), SECONDS)
        except TimeoutError:
            status, content = 504, {"error": f"no answer in {SECONDS:g} seconds"}
        except Exception as error:
            status, content = 500, {"error": type(error).__name__}
    ANSWERS.labels(str(status)).inc()
    return JSONResponse(content, status, {"Connection": "close"} if status == 413 else None)


@app.get("/health")
async def health() -> dict:
    return {"models": sorted(app.state.batchers)}


@app.get("/metrics")
async def metrics() -> Response:
    registry = prometheus.REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        multiprocess.MultiProcessCollector(registry := prometheus.CollectorRegistry())
    latest = prometheus.generate_latest(registry)
    return Response(latest, media_type=prometheus.CONTENT_TYPE_LATEST)


@app.get("/")
async def page() -> HTMLResponse:
    return HTMLResponse(PAGE)
