"""The page on which one person labels texts: its routes, and who may call them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import AfterValidator, BaseModel, Field, StrictStr

from halflabel.errors import HalflabelError, OutputError
from halflabel.labelling import NOTE_LENGTH, Labelling
from halflabel.serve.app import add_refusals, page_headers
from halflabel.serve.requests import Refusal, unicode
from halflabel.serve.server import Gate, Limits, Metrics

LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")


class AnswerRequest(BaseModel):
    """An answer about the text with that key: its labels, or null to skip it."""

    key: StrictStr
    labels: list[StrictStr] | None = Field(max_length=1000)
    note: Annotated[StrictStr, AfterValidator(unicode)] = Field("", max_length=NOTE_LENGTH)


class LabelRequest(BaseModel):
    """A label to add."""

    name: StrictStr


def create_label_app(labelling: Labelling, *, token: str, local: bool = True) -> Gate:
    """The ASGI application; `local` refuses requests that name another host, as DNS rebinding makes them."""
    page = files("halflabel.serve").joinpath("label.html").read_text(encoding="utf-8")
    headers = page_headers(page)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(labelling.close)

    def check_origin(request: Request) -> None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if local and re.sub(r":\d+$", "", host) not in LOCAL_NAMES:
            raise Refusal(421, "This server only answers at its own address; open the one that the terminal shows.")
        if origin not in (None, f"http://{host}") or request.headers.get("sec-fetch-site") == "cross-site":
            raise Refusal(403, "Requests from other sites are refused.", "Unauthorized")

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None,
                  dependencies=[Depends(check_origin)])
    add_refusals(app)

    @app.exception_handler(HalflabelError)
    async def refused(request: Request, error: HalflabelError) -> Response:
        sentence = f"{error}".rstrip(".") + "."
        status = 507 if isinstance(error, OutputError) else 422
        return Refusal(status, sentence[0].upper() + sentence[1:]).response(request.url.path)

    @app.get("/")
    async def index() -> HTMLResponse:
        return HTMLResponse(page, headers=headers)

    @app.get("/state")
    def state() -> dict[str, Any]:
        return labelling.state()

    @app.post("/answer")
    def answer(body: AnswerRequest) -> dict[str, Any]:
        labelling.answer(body.key, body.labels, body.note)
        return labelling.state()

    @app.post("/undo")
    def undo() -> dict[str, Any]:
        labelling.undo()
        return labelling.state()

    @app.post("/label")
    def label(body: LabelRequest) -> dict[str, Any]:
        labelling.add_label(body.name)
        return labelling.state()

    @app.post("/revisit")
    def revisit() -> dict[str, Any]:
        labelling.revisit()
        return labelling.state()

    return Gate(app, token=token, limits=Limits(), metrics=Metrics(), log=lambda entry: None)
