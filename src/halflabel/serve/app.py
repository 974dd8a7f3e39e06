"""The routes: Text Embeddings Inference's /predict, the Open Inference Protocol under /v2, and reasons for the page.

`label_studio.py` has another protocol in place of the first.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from halflabel import __version__
from halflabel.reasons import Explanation, explanation_steps
from halflabel.serve.batching import Batcher, Prediction, QueueFull, ServedModel
from halflabel.serve.requests import (
    INPUT,
    ExplainRequest,
    InferRequest,
    LabelScore,
    PredictRequest,
    Reasons,
    Refusal,
    check_texts,
    sentence,
)
from halflabel.serve.server import Gate, Limits, Log, Metrics

DIGITS = 6  # of scores, as in `halflabel predict`


class Service:
    """A model behind a queue, for as long as the server runs."""

    def __init__(self, model: ServedModel, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.metrics = Metrics()
        self.batcher = Batcher(model, queue_texts=max(self.limits.queue_texts, self.limits.request_texts),
                               report=self.metrics.count_batch)
        self.metrics.queue.set_function(lambda: self.batcher.waiting)

    @property
    def model(self) -> ServedModel:
        return self.batcher.model

    def replace(self, model: ServedModel) -> None:
        """Predicts with another model from the next batch on."""
        self.batcher.model = model

    async def predict(self, request: Request, texts: list[str], *, raw: bool = False) -> Prediction:
        """The prediction for the texts of a request, as soon as their batch is done."""
        request.state.texts = len(texts)
        check_texts(texts, self.limits.request_texts)
        prediction = await self._submit(texts, raw=raw)
        self.metrics.count_answer(prediction)
        return prediction

    async def explain(self, request: Request, text: str, label: str | None) -> dict[str, Any]:
        """The words of a text that moved the probability of a label, by default of the most probable one."""
        request.state.texts = 1
        check_texts([text], 1)
        if len(text) > self.limits.explained_characters:
            raise Refusal(413, f"The text has more than {self.limits.explained_characters:,} characters, the most for "
                               "which reasons are computed; send a shorter one.")
        labels = self.model.labels
        if label is not None and label not in labels:
            raise Refusal(422, "label: the model has no such label; /info lists them.")
        steps = explanation_steps(text, None if label is None else labels.index(label))
        texts = next(steps)
        while True:
            prediction = await self._submit(texts)
            if prediction.model.labels != labels:
                raise Refusal(503, "The model was replaced by one with other labels; try again.", "Overloaded")
            try:
                texts = steps.send(prediction.values)
            except StopIteration as end:
                return reasons_of(end.value, labels)

    async def _submit(self, texts: list[str], *, raw: bool = False) -> Prediction:
        seconds = self.limits.answer_seconds
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(self.batcher.submit(texts, raw=raw))
        except QueueFull:
            raise Refusal(429, "The model is overloaded; try again later.", "Overloaded") from None
        except TimeoutError:
            raise Refusal(503, f"The model did not answer within {seconds:g} seconds; try again later.",
                          "Overloaded") from None
        except ValueError as error:  # HalflabelError among them
            raise Refusal(424, f"The model could not predict: {error}", "Backend") from error


def create_app(service: Service, *, log: Log, token: str | None = None,
               add_routes: Callable[[FastAPI, Service], None] | None = None) -> Gate:
    """The ASGI application that serves a model, by the Open Inference Protocol and one other (`add_routes`)."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.batcher.start()
        yield
        await asyncio.to_thread(service.batcher.close)

    # FastAPI's documentation pages load scripts from the network, so /docs is a page of our own
    app = FastAPI(title="halflabel", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Metrics in Prometheus' format."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.get("/info")
    async def info() -> dict[str, Any]:
        """The model and the limits of the server."""
        return about(service.model, service.limits)

    (add_routes or add_text_embeddings_inference)(app, service)
    add_open_inference(app, service)
    add_refusals(app)
    return Gate(app, token=token, limits=service.limits, metrics=service.metrics, log=log)


def add_page(app: FastAPI, path: str, file: str) -> None:
    """A page of the package."""
    page = files("halflabel.serve").joinpath(file).read_text(encoding="utf-8")
    headers = page_headers(page)

    @app.get(path, response_class=HTMLResponse, include_in_schema=False)
    async def show() -> HTMLResponse:
        return HTMLResponse(page, headers=headers)


def add_text_embeddings_inference(app: FastAPI, service: Service) -> None:
    """The routes of Text Embeddings Inference, the page that uses them, and one that describes all."""
    add_page(app, "/", "page.html")
    add_page(app, "/docs", "docs.html")

    @app.get("/health")
    async def health() -> Response:
        """Whether the server can answer."""
        return Response()

    @app.post("/predict", response_model=list[LabelScore] | list[list[LabelScore]])
    async def predict(request: Request, body: PredictRequest) -> Response:
        """All labels with their scores, the highest first, or none for an unknown text; a list for a list of texts."""
        prediction = await service.predict(request, body.texts, raw=body.raw_scores)
        rows = ranked(prediction)
        return Response(rows[0] if isinstance(body.inputs, str) else f"[{','.join(rows)}]",
                        media_type="application/json")

    @app.post("/explain", response_model=Reasons)
    async def explain(request: Request, body: ExplainRequest) -> Response:
        """The words that raise or lower the probability of a label: each is left out in turn."""
        return JSONResponse(await service.explain(request, body.inputs, body.label))


def add_open_inference(app: FastAPI, service: Service) -> None:
    """The routes of the Open Inference Protocol."""

    def check_name(name: str) -> None:
        if name != service.model.name:
            raise Refusal(404, f"There is no model with this name; this server has '{service.model.name}'.")

    @app.get("/v2")
    async def server() -> dict[str, Any]:
        """The server."""
        return {"name": "halflabel", "version": __version__, "extensions": []}

    @app.get("/v2/health/live")
    async def live() -> dict[str, bool]:
        """Whether the server runs."""
        return {"live": True}

    @app.get("/v2/health/ready")
    async def ready() -> dict[str, bool]:
        """Whether the model is loaded."""
        return {"ready": True}

    @app.get("/v2/models/{name}")
    async def model(name: str) -> dict[str, Any]:
        """The tensors of the model, and its labels."""
        check_name(name)
        return metadata(service.model)

    @app.get("/v2/models/{name}/ready")
    async def model_ready(name: str) -> dict[str, Any]:
        """Whether the model is loaded."""
        check_name(name)
        return {"name": name, "ready": True}

    @app.post("/v2/models/{name}/infer")
    async def infer(request: Request, name: str, body: InferRequest) -> Response:
        """The labels of texts, and the probabilities of all labels."""
        check_name(name)
        outputs = {output["name"] for output in metadata(service.model)["outputs"]}
        wanted = outputs if body.outputs is None else {output.name for output in body.outputs}
        if wanted - outputs:
            raise Refusal(422, f"The model has no such output; choose from {', '.join(sorted(outputs))}.")
        prediction = await service.predict(request, body.texts)
        answer = {"model_name": name, "outputs": [tensor for tensor in tensors(prediction) if tensor["name"] in wanted]}
        return JSONResponse(answer if body.id is None else answer | {"id": body.id})


def add_refusals(app: FastAPI) -> None:
    """Answers every error in the format of the path's protocol."""

    @app.exception_handler(Refusal)
    async def refused(request: Request, refusal: Refusal) -> Response:
        return refusal.response(request.url.path)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return Refusal(422, sentence(list(error.errors()))).response(request.url.path)

    @app.exception_handler(HTTPException)
    async def other(request: Request, error: HTTPException) -> Response:
        path = request.url.path
        if error.status_code == 400:
            return Refusal(422, "The body is not valid JSON in UTF-8, or is nested too deeply.").response(path)
        if error.status_code == 405:
            response = Refusal(405, "This path does not answer this method; see /openapi.json.").response(path)
            response.headers.update(error.headers or {})
            return response
        return Refusal(error.status_code, "There is nothing here; see /openapi.json.").response(path)

    @app.exception_handler(Exception)
    async def failed(request: Request, _: Exception) -> Response:
        return Refusal(500, "The server failed; its log says why.", "Backend").response(request.url.path)


def about(model: ServedModel, limits: Limits) -> dict[str, Any]:
    """The answer to /info: fields of Text Embeddings Inference, and what else describes the model."""
    labels = dict(enumerate(model.labels))
    return {"model_id": model.name, "model_type": {"classifier": {
                "id2label": {str(k): label for k, label in labels.items()},
                "label2id": {label: k for k, label in labels.items()}}},
            "max_client_batch_size": limits.request_texts, "max_concurrent_requests": limits.queue_texts,
            "auto_truncate": True, "version": __version__, "task": model.model.task,
            "decision": model.model.rules.chosen if model.multilabel else None, "farthest": model.farthest}


def metadata(model: ServedModel) -> dict[str, Any]:
    """The model's metadata by the Open Inference Protocol; -1 is the number of texts."""
    k = len(model.labels)
    label = tensor_of("labels", "BOOL", [-1, k]) if model.multilabel else tensor_of("label", "BYTES", [-1])
    outputs = [label, tensor_of("probability", "FP32", [-1, k])]
    if model.farthest is not None:
        outputs.append(tensor_of("distance", "FP32", [-1]))
    return {"name": model.name, "platform": "halflabel", "inputs": [tensor_of(INPUT, "BYTES", [-1])],
            "outputs": outputs, "parameters": {"labels": model.labels}}


def tensor_of(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


def tensors(prediction: Prediction) -> list[dict[str, Any]]:
    """The output tensors: the label (empty for none), or whether a text has each label, and the probabilities."""
    model, (n, k) = prediction.model, prediction.values.shape
    if model.multilabel:
        first = tensor_of("labels", "BOOL", [n, k]) | {"data": prediction.chosen.ravel().tolist()}
    else:
        names = [model.labels[row.argmax()] if row.any() else "" for row in prediction.chosen]
        first = tensor_of("label", "BYTES", [n]) | {"data": names}
    p = prediction.values.astype(float).round(DIGITS).ravel().tolist()
    found = [first, tensor_of("probability", "FP32", [n, k]) | {"data": p, "parameters": {"labels": model.labels}}]
    if prediction.distances is not None:
        distances = prediction.distances.astype(float).round(DIGITS).tolist()
        found.append(tensor_of("distance", "FP32", [n]) | {"data": distances})
    return found


def ranked(prediction: Prediction) -> list[str]:
    """All labels of each text with their scores, as JSON, the highest first; none of a text far from all classes.

    It is put together here, since json.dumps takes longer for so many small objects than a student does to predict.
    """
    openings, values = prediction.model.score_openings, prediction.values.astype(float)
    order = (-values).argsort(axis=1, kind="stable").tolist()
    known = [prediction.distances is None or chosen for chosen in np.any(prediction.chosen, axis=1).tolist()]
    return [f"[{','.join([f'{openings[k]}{row[k]!r}}}' for k in columns])}]" if answered else "[]"
            for row, columns, answered in zip(values.round(DIGITS).tolist(), order, known, strict=True)]


def reasons_of(explanation: Explanation, labels: list[str]) -> dict[str, Any]:
    """The answer to /explain."""
    return {"label": labels[explanation.column], "score": round(explanation.probability, DIGITS),
            "score_without": round(explanation.without, DIGITS),
            "reasons": [{"start": part.start, "end": part.end, "change": round(part.change, DIGITS)}
                        for part in explanation.reasons]}


def page_headers(page: str) -> dict[str, str]:
    """Headers that allow the page's own style and script, by their hashes, and nothing else."""
    def hashed(tag: str) -> str:
        content = page.split(f"<{tag}>", 1)[1].split(f"</{tag}>", 1)[0]
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    policy = (f"default-src 'none'; style-src {hashed('style')}; script-src {hashed('script')}; connect-src 'self'; "
              "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
    return {"content-security-policy": policy, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin", "cache-control": "no-store"}
