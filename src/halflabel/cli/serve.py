"""`halflabel serve`: serves a model over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from halflabel.cli import console, options
from halflabel.cli.folders import open_model, sample_texts
from halflabel.errors import HalflabelError, MissingExtra, OutputError, SettingError

if TYPE_CHECKING:
    from halflabel.data.annotators import AnswerFile

PACKAGES = ("fastapi", "uvicorn", "prometheus_client")
WARM_UP = 32  # texts that a model predicts before it is served, so that what is prepared once delays no request
TASKS_BYTES = 20_000_000  # of a request by Label Studio, which sends up to 1,000 tasks with all their data
LOCAL = ("127.0.0.1", "::1", "localhost")


def serve(
    model: options.Model,
    *,
    host: Annotated[str, options.option(metavar="HOST", help="Address to listen at; 0.0.0.0 for all networks.")
                    ] = "127.0.0.1",
    port: Annotated[int, options.option(metavar="PORT", min=0, max=65535, help="Port to listen at; 0 for a free one.")
                    ] = 8000,
    token: Annotated[str | None, options.plain(
        metavar="TOKEN", help="Bearer token that requests must have; better set as HALFLABEL_SERVE_TOKEN, since other "
                              "users can see arguments.")] = None,
    max_batch: Annotated[int, options.option(metavar="N", min=1, help="Texts per request, at most.")] = 256,
    unknown: options.Unknown = False,
    coverage: options.Coverage = None,
    label_studio: Annotated[bool, options.option(
        "--label-studio", help="Speak Label Studio's ML backend protocol instead of Text Embeddings Inference's.",
    )] = False,
    answers: Annotated[Path | None, options.plain(
        metavar="FILE", help="With --label-studio: file (.jsonl) to which annotations are appended, for `halflabel "
                             "update`.")] = None,
    backend: options.Backend = None,
    device: options.Device = None,
    precision: options.Precision = None,
    config: options.Config = None,
) -> None:
    """Serve a model over HTTP, with a page to try it.

    It speaks Text Embeddings Inference's /predict and the Open Inference Protocol (/v2). A line of JSON is logged for
    each request, without its texts. Ctrl-C stops it after the requests that it has accepted; the signal SIGHUP loads
    the model in DIR again.

    \b
    halflabel serve model
    halflabel serve model --unknown --coverage 0.98
    curl localhost:8000/predict -H 'Content-Type: application/json' -d '{"inputs": "a text"}'
    halflabel serve model --label-studio --answers labels.jsonl
    """
    check_server(token)
    if answers is not None and not label_studio:
        raise SettingError("--answers keeps annotations of Label Studio; give --label-studio as well")
    if answers is not None:
        check_answers(answers, "--answers")
    from halflabel.cli.predict import farthest_known
    from halflabel.serve.app import Service, create_app
    from halflabel.serve.batching import ServedModel
    from halflabel.serve.server import BACKLOG, Limits, address_of, bind, run

    def load() -> ServedModel:
        name, opened = model.resolve().name, open_model(model, backend, consistent=True, device=device,
                                                        precision=precision)
        farthest = farthest_known(opened, coverage) if unknown or coverage is not None else None
        version = f"{name}-{version_of(model)}" if label_studio else name
        served = ServedModel(name, opened, farthest, version)
        served.predict(sample_texts()[:WARM_UP], raw=False)
        return served

    def reload() -> None:
        try:
            service.replace(load())
        except (HalflabelError, OSError) as error:
            console.note(f"the model was not reloaded, the earlier one is still served: {error}")
        else:
            console.hint(f"reloaded {model}")

    with bind(host, port) as bound, nullcontext() if answers is None else open_answers(answers) as kept:
        limits = Limits(request_texts=max_batch)
        add_routes = None
        if label_studio:
            from halflabel.serve.label_studio import add_label_studio

            add_routes, limits = partial(add_label_studio, answers=kept), replace(limits, body_bytes=TASKS_BYTES)
        service = Service(load(), limits)
        if kept and any(isinstance(label, tuple) is not service.model.multilabel for label in kept.labels.values()):
            raise SettingError(f"{answers} and {model} differ in whether texts have several labels; choose another "
                               "--answers")
        app = create_app(service, log=console.log, token=token, add_routes=add_routes)
        if token is None and host not in LOCAL:
            console.note(f"everyone who can reach {host} can use the model; --token restricts it")
        bound.listen(BACKLOG)
        console.hint(f"serving {model} at {address_of(bound)}, Ctrl-C stops it")
        run(app, bound, reload, console.log)


def version_of(model: Path) -> str:
    """What changes with the files of a model."""
    from hashlib import sha256

    from halflabel.integrity import fingerprint

    return sha256(repr(sorted(fingerprint(model).items())).encode()).hexdigest()[:8]


def check_answers(file: Path, option: str) -> None:
    """Refuses a file of answers with another suffix, or in a folder that does not exist."""
    if file.suffix != ".jsonl":
        raise SettingError(f"{option} {file} has to end in .jsonl, since answers are appended as lines of JSON")
    if not file.parent.is_dir():
        raise OutputError(f"there is no folder {file.parent}; create it first, or choose another {option}")


@contextmanager
def open_answers(file: Path) -> Iterator[AnswerFile]:
    """A file of answers that no other process writes to meanwhile."""
    from halflabel.data.annotators import AnswerFile
    from halflabel.output_folders import lock

    with lock(file.parent / f".{file.name}.lock", file), closing(AnswerFile(file)) as answers:
        console.note(*answers.notices)
        yield answers


def check_server(token: str | None) -> None:
    """Refuses to serve without the packages for it, or with a token that no header can contain."""
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise MissingExtra(f"{missing[0]} is not installed; pip install 'halflabel[serve]'")
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise SettingError("--token must be printable ASCII without surrounding spaces, and not empty")
