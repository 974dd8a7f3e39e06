"""What a model folder must be before anything is made of it: as it was written, and free of code. No torch.

Checksums find damage. They are no signature: whoever can change a model can change them as well, so what a folder says
is checked besides, and nothing that it brings is ever run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from halflabel.atomic import write_text
from halflabel.errors import BadInput

CHECKSUMS = "checksums.json"
PARTS = ("config.json", "decision.json", "encoder/**/*", "encoder.safetensors", "model.safetensors",  # a trained model
         "export.json", "model.onnx", "tokenizer.json")  # an exported one
CODE = ("auto_map", "custom_pipelines")  # entries of a configuration that name Python files
SHARD = re.compile(r"[\w-]+\.safetensors")  # a part of the weights, in the same folder
AGAIN = "copy or train the model again."


def write_checksums(folder: Path) -> None:
    """checksums.json of a finished model, as its last file."""
    _write(folder, {name: _digest(file) for name, file in _parts(folder).items()})


def drop_checksums(folder: Path) -> None:
    """Before files are replaced: a model that is changing has no checksums, so a kill leaves none that are wrong."""
    (folder / CHECKSUMS).unlink(missing_ok=True)


@contextmanager
def replacing(folder: Path, name: str) -> Iterator[None]:
    """While one file of a model is replaced; its checksum follows, where the model has checksums."""
    recorded = _recorded(folder)
    drop_checksums(folder)
    yield
    if recorded is not None:
        _write(folder, recorded | {name: _digest(folder / name)})


def verify(folder: Path) -> bool:
    """Refuses a model with a file that is missing, added or changed; whether it has checksums to tell by."""
    recorded = _recorded(folder)
    if recorded is None:
        return False
    found = _parts(folder)
    for name, known in recorded.items():
        if name not in found:
            raise BadInput(f"{folder / name} is missing; {AGAIN}")
        if _digest(found[name]) != known:
            raise BadInput(f"{folder / name} is damaged or was changed after the model was written; {AGAIN}")
    if added := sorted(found.keys() - recorded.keys()):
        raise BadInput(f"{folder / added[0]} was added after the model was written; remove it, or {AGAIN}")
    return True


def refuse_code(folder: Path) -> None:
    """Refuses a folder with Python files, a configuration that names some, or weights that lie elsewhere."""
    for file in sorted(folder.iterdir()):
        if file.suffix in (".py", ".pyc", ".so"):
            raise BadInput(f"{file} is code, which halflabel never takes from a model; use a model without it.")
        if not file.is_file() and not file.is_dir():
            raise BadInput(f"{file} is neither a file nor a folder; remove it, or {AGAIN}")
        if file.name.endswith("config.json") and (named := _keys(_parsed(file)) & set(CODE)):
            raise BadInput(f"{file} names code of its own ({named.pop()}), which halflabel never runs; use a model "
                           "without it.")
        if file.name.endswith(".index.json"):
            shards = read_json(file).get("weight_map")
            names = set(map(str, shards.values())) if isinstance(shards, dict) else {"nothing"}
            if wrong := [name for name in sorted(names) if not SHARD.fullmatch(name)]:
                raise BadInput(f"{file} points to {wrong[0]}, which is no safetensors file beside it; use another "
                               "encoder.")


def read_json(file: Path, again: str = AGAIN) -> dict[str, Any]:
    """The JSON object in a file of a model."""
    if not file.is_file():
        raise BadInput(f"{file} is missing; {again}")
    found = _parsed(file, again)
    if not isinstance(found, dict):
        raise BadInput(f"{file} does not hold a JSON object; {again}")
    return found


def _parsed(file: Path, again: str = AGAIN) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{file} is not whole ({str(error).splitlines()[0]}); {again}") from error


def require(found: dict[str, Any], kinds: dict[str, type], file: Path, again: str = AGAIN) -> None:
    """Refuses an object in which an entry is missing or of another kind."""
    for name, kind in kinds.items():
        if name not in found:
            raise BadInput(f"{file} does not say its {name}; {again}")
        if not isinstance(found[name], kind) or (kind is int and isinstance(found[name], bool)):
            raise BadInput(f"{file} has an entry {name} that is no {kind.__name__}; {again}")


def _keys(value: Any) -> set[str]:
    """The keys of an object and of all objects in it."""
    if isinstance(value, list):
        return set().union(*map(_keys, value))
    return set(value).union(*map(_keys, value.values())) if isinstance(value, dict) else set()


def _parts(folder: Path) -> dict[str, Path]:
    """The files that make up a model, by their names within the folder."""
    found = (file for pattern in PARTS for file in folder.glob(pattern))
    return {file.relative_to(folder).as_posix(): file for file in sorted(found)
            if file.is_file() and not file.name.startswith(".")}


def _digest(file: Path) -> str:
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write(folder: Path, digests: dict[str, str]) -> None:
    write_text(folder / CHECKSUMS, json.dumps({"sha256": digests}, indent=1))


def _recorded(folder: Path) -> dict[str, str] | None:
    file = folder / CHECKSUMS
    if not file.exists():
        return None
    found = read_json(file)
    require(found, {"sha256": dict}, file)
    digests: dict[str, str] = found["sha256"]
    return digests
