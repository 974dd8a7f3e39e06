"""`halflabel serve`: serves a model over HTTP."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

from halflabel.cli import console, options
from halflabel.errors import HalflabelError, MissingExtra, SettingError

PACKAGES = ("fastapi", "uvicorn", "prometheus_client")
WARM_UP = 32  # texts that a model predicts before it is served, so that what is prepared once delays no request
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
    max_batch: Annotated[int, options.option(metavar="N", min=1, help="Texts per request, at most.")] = 32,
    unknown: options.Unknown = False,
    coverage: options.Coverage = None,
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
    """
    check_server(token)
    from halflabel.cli.models import open_model, sample_texts
    from halflabel.cli.predict import farthest_known
    from halflabel.serve.app import Service, create_app
    from halflabel.serve.batching import ServedModel
    from halflabel.serve.gate import Limits
    from halflabel.serve.server import BACKLOG, address_of, bind, run

    def load() -> ServedModel:
        opened = open_model(model, backend, consistent=True, device=device, precision=precision)
        farthest = farthest_known(opened, coverage) if unknown or coverage is not None else None
        served = ServedModel(model.resolve().name, opened, farthest)
        served.predict(sample_texts()[:WARM_UP], raw=False)
        return served

    def reload() -> None:
        try:
            service.replace(load())
        except (HalflabelError, OSError) as error:
            console.note(f"the model was not reloaded, the earlier one is still served: {error}")
        else:
            console.hint(f"reloaded {model}")

    with bind(host, port) as bound:
        service = Service(load(), Limits(request_texts=max_batch))
        app = create_app(service, log=console.log, token=token)
        if token is None and host not in LOCAL:
            console.note(f"everyone who can reach {host} can use the model; --token restricts it")
        bound.listen(BACKLOG)
        console.hint(f"serving {model} at {address_of(bound)}, Ctrl-C stops it")
        run(app, bound, reload, console.log)


def check_server(token: str | None) -> None:
    """Refuses to serve without the packages for it, or with a token that no header can contain."""
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        raise MissingExtra(f"{missing[0]} is not installed; pip install 'halflabel[serve]'")
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise SettingError("--token must be printable ASCII without surrounding spaces, and not empty")
