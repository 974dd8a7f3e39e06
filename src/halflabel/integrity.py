"""Checks of a model folder before it is used: it is as it was written, and free of code. No torch.

Checksums detect damage. They are not a signature: whoever can change a model can change them as well. So the contents
are validated too, and nothing in a folder is ever executed.
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
from halflabel.errors import ModelError

CHECKSUMS = "checksums.json"
MODEL_FILES = ("config.json", "decision.json", "unknown.safetensors", "words.safetensors",
               "neighbours.safetensors", "encoder/**/*", "encoder.safetensors", "model.safetensors",  # trained
               "export.json", "model.onnx", "tokenizer.json",  # exported
               "student.json", "student.safetensors")  # distilled
CODE_ENTRIES = ("auto_map", "custom_pipelines")  # of a configuration, which name Python files
WEIGHTS_FILE = re.compile(r"[\w-]+\.safetensors")  # in the same folder
COPY_OR_RETRAIN = "copy or train the model again."


def write_checksums(folder: Path) -> None:
    """Writes checksums.json, the last file of a finished model."""
    _write(folder, {name: _digest(file) for name, file in _model_files(folder).items()})


def drop_checksums(folder: Path) -> None:
    """Removes checksums before files are replaced, so that an interruption leaves none that are wrong."""
    (folder / CHECKSUMS).unlink(missing_ok=True)


@contextmanager
def updating_checksum(folder: Path, name: str) -> Iterator[None]:
    """Updates the checksum of one file that is rewritten in the meantime, if the model has checksums."""
    recorded = _recorded(folder)
    drop_checksums(folder)
    yield
    if recorded is not None:
        _write(folder, recorded | {name: _digest(folder / name)})


def verify(folder: Path) -> bool:
    """Refuses a model with a missing, added or changed file; returns whether it has checksums to tell."""
    recorded = _recorded(folder)
    if recorded is None:
        return False
    files = _model_files(folder)
    for name, digest in recorded.items():
        if name not in files:
            raise ModelError(f"{folder / name} is missing; {COPY_OR_RETRAIN}")
        if _digest(files[name]) != digest:
            raise ModelError(f"{folder / name} is damaged or was changed after the model was written; "
                             f"{COPY_OR_RETRAIN}")
    if added := sorted(files.keys() - recorded.keys()):
        raise ModelError(f"{folder / added[0]} was added after the model was written; remove it, or {COPY_OR_RETRAIN}")
    return True


def fingerprint(folder: Path) -> dict[str, str]:
    """The checksum of each file of a model, with those of the teacher in a cascade: what the model is."""
    inside = {name: _digest(file) for name, file in _model_files(folder).items()}
    teacher = folder / "teacher"
    return inside | ({f"teacher/{name}": digest for name, digest in fingerprint(teacher).items()}
                     if teacher.is_dir() else {})


def refuse_code(folder: Path) -> None:
    """Refuses a folder with Python files, with a configuration that names some, or with weights in other folders."""
    for file in sorted(folder.iterdir()):
        if file.suffix in (".py", ".pyc", ".so"):
            raise ModelError(f"{file} is code, which halflabel never executes; use a model without it.")
        if not file.is_file() and not file.is_dir():
            raise ModelError(f"{file} is neither a file nor a folder; remove it, or {COPY_OR_RETRAIN}")
        if file.name.endswith("config.json") and (entries := _keys(_parse(file)) & set(CODE_ENTRIES)):
            raise ModelError(f"{file} refers to code ({entries.pop()}), which halflabel never executes; use a model "
                             "without it.")
        if file.name.endswith(".index.json"):
            shards = read_json(file).get("weight_map")
            names = set(map(str, shards.values())) if isinstance(shards, dict) else {"nothing"}
            if wrong := [name for name in sorted(names) if not WEIGHTS_FILE.fullmatch(name)]:
                raise ModelError(f"{file} refers to {wrong[0]}, which is not a safetensors file in the same folder; "
                                 "use another encoder.")


def read_json(file: Path, remedy: str = COPY_OR_RETRAIN) -> dict[str, Any]:
    """The JSON object in a file of a model."""
    if not file.is_file():
        raise ModelError(f"{file} is missing; {remedy}")
    content = _parse(file, remedy)
    if not isinstance(content, dict):
        raise ModelError(f"{file} does not contain a JSON object; {remedy}")
    return content


def read_arrays(file: Path, remedy: str = COPY_OR_RETRAIN) -> dict[str, Any]:
    """The arrays in a safetensors file of a model."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not file.is_file():
        raise ModelError(f"{file} is missing; {remedy}")
    try:
        return dict(load_file(file))
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{file} is damaged ({error}); {remedy}") from None


def _parse(file: Path, remedy: str = COPY_OR_RETRAIN) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{file} is not valid JSON ({str(error).splitlines()[0]}); {remedy}") from error


def require(content: dict[str, Any], types: dict[str, type], file: Path, remedy: str = COPY_OR_RETRAIN) -> None:
    """Refuses a JSON object with an entry that is missing or of another type."""
    for name, kind in types.items():
        if name not in content:
            raise ModelError(f"{file} has no entry '{name}'; {remedy}")
        if not isinstance(content[name], kind) or (kind is int and isinstance(content[name], bool)):
            raise ModelError(f"{file} has an entry '{name}' that is not of type {kind.__name__}; {remedy}")


def _keys(value: Any) -> set[str]:
    """All keys of a JSON value, nested ones included."""
    if isinstance(value, list):
        return set().union(*map(_keys, value))
    return set(value).union(*map(_keys, value.values())) if isinstance(value, dict) else set()


def _model_files(folder: Path) -> dict[str, Path]:
    """The files that make up a model, by their names within the folder."""
    files = (file for pattern in MODEL_FILES for file in folder.glob(pattern))
    return {file.relative_to(folder).as_posix(): file for file in sorted(files)
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
    content = read_json(file)
    require(content, {"sha256": dict}, file)
    digests: dict[str, str] = content["sha256"]
    return digests
