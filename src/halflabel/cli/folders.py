"""Files and folders of a command: models that it opens, behind one interface, and outputs that it may write."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from halflabel.atomic import real
from halflabel.cli import console
from halflabel.errors import ModelError, OutputError, SettingError
from halflabel.notices import Notice
from halflabel.output_folders import EXPORT, RUN, STUDENT, FolderKind, filled

if TYPE_CHECKING:
    from halflabel.data.readers.formats import Write
    from halflabel.persistence.model_folder import Model
    from halflabel.suggestions import Predictor

BACKENDS = ("torch", "compile", "onnx", "onnx-int8")
SAMPLE = 256  # texts on which an export is compared with its model
FORMATS = ("jsonl", "csv", "tsv", "parquet")  # shown in the help
SAME = "same"  # as the input
STDIN = "-"
MAX_NAMES = 3  # files listed in a notice


def open_model(folder: Path, backend: str | None = None, *, consistent: bool = False, device: str | None = None,
               precision: str | None = None) -> Model:
    """The model in a folder, run by a backend on a device; an exported or distilled one needs no torch.

    A `consistent` model encodes few texts in the same precision as many; what it prepares for that pays in a long run.
    """
    from halflabel.students.student import is_student

    if backend is not None and backend not in BACKENDS:
        raise SettingError(f"there is no backend '{backend}'; choose one of {', '.join(BACKENDS)}")
    if is_student(folder):
        check_on_cpu(folder, "is a distilled model", device, precision)
        if backend is not None:
            raise ModelError(f"{folder} is a distilled model, which has no backends; leave out --backend")
        from halflabel.students.cascade import open_student

        return open_student(folder)
    from halflabel.persistence.onnx_model import OnnxModel, is_export

    if is_export(folder):
        if backend not in (None, "onnx", "onnx-int8"):
            raise ModelError(f"{folder} is an exported model, which only ONNX Runtime can run; leave out --backend")
        check_on_cpu(folder, "is an exported model", device, precision)
        return OnnxModel(folder)
    if backend in ("onnx", "onnx-int8"):
        check_on_cpu(folder, f"is run by the backend {backend}", device, precision)
    gc.disable()  # imports create many objects and no garbage; to collect it would be a tenth of the start-up time
    from halflabel.devices import choose_compute
    from halflabel.persistence.model import load

    gc.enable()
    compute = choose_compute(device or "auto", precision or "auto")
    model = replace(load(folder), consistent=consistent)
    console.detail(f"{folder} is a model of {model.method} with {model.facts.get('encoder')}, opened on "
                   f"{compute.to_json()}")
    if backend in (None, "torch"):
        return model.on(compute)
    from halflabel.persistence.onnx_export import with_backend

    return with_backend(model.on(compute) if backend == "compile" else model, str(backend), sample_texts())


def check_on_cpu(folder: Path, why: str, device: str | None, precision: str | None) -> None:
    """Refuses options for a device or precision that a model does not have."""
    if device not in (None, "auto", "cpu") or precision not in (None, "auto"):
        raise SettingError(f"{folder} {why}, which has one precision and runs on the CPU; leave out --device and "
                           "--precision")


def with_vectors(model: Model, folder: Path) -> Predictor:
    """The model itself; an error if it has no vectors of texts, as a distilled one."""
    if not hasattr(model, "vectors"):
        raise ModelError(f"{folder} is a distilled model, which has no vectors of texts; give its teacher")
    return cast("Predictor", model)


def refuse_untrained(folder: Path, done: str) -> None:
    """Refuses a model that was made of a trained one, where only a trained one can be `done`."""
    from halflabel.persistence.onnx_model import is_export
    from halflabel.students.student import is_student

    if is_student(folder) or is_export(folder):
        kind = "a distilled" if is_student(folder) else "an exported"
        raise ModelError(f"{folder} is {kind} model, and only a trained one can be {done}; name the folder that "
                         "`halflabel train --out` wrote")


def sample_texts() -> list[str]:
    """Texts of the sample corpus, to compare an export with its model."""
    from halflabel.data.corpus import sample

    return list(sample("test").texts[:SAMPLE])


def check_output(file: Path | None, named: str | None, *, force: bool) -> str:
    """The format of an output: the one named, else by the suffix; refuses an output that cannot be written."""
    from halflabel.data.readers.formats import output_formats

    formats = output_formats()
    kind = named or (file.suffix.lower().lstrip(".") if file else "jsonl")
    if kind not in formats:
        what = f"the format '{kind}' is not known" if named else f"the suffix of {file} is not a known format"
        raise SettingError(f"{what}; use one of {', '.join(formats)} (--format)")
    if file is not None:
        check_file(file, force=force)
    elif kind == "parquet":
        raise SettingError("parquet cannot go to standard output; name a file with --out")
    return kind


def check_file(file: Path, *, force: bool) -> None:
    """Refuses a file in a folder that does not exist, or one that exists, unless --force replaces it."""
    if not real(file).parent.is_dir():
        raise OutputError(f"there is no folder {file.parent}; create it first, or choose another --out")
    if file.exists() and not (force and file.is_file()):
        raise OutputError(f"{file} exists already; choose another --out{', or give --force' if file.is_file() else ''}")


@contextmanager
def output(file: Path | None, kind: str) -> Iterator[Write]:
    """A function that writes rows to a file or to standard output."""
    from halflabel.data.readers.formats import open_writer, text_writer

    if file is not None:
        with open_writer(file, kind) as write:
            yield write
        return
    yield text_writer(sys.stdout, kind)
    sys.stdout.flush()


def check_run_folder(out: Path, *, resume: bool, force: bool) -> list[Notice]:
    """Refuses a folder that a run cannot use, before anything is read; a notice lists what --force leaves in it."""
    if resume and force:
        raise SettingError("--resume continues a run and --force replaces it; give one of them")
    if resume and not (out / "run.json").is_file():  # the last file that the start of a run writes
        raise OutputError(f"{out} has no run to resume (there is no run.json in it); leave out --resume")
    if resume or not filled(out):
        return []
    if not force:
        raise OutputError(f"{out} is not empty; choose another --out, resume with --resume, or replace it with --force")
    if not looks_like_run(out):
        raise OutputError(f"{out} does not look like a run of halflabel, so --force does not replace it; choose "
                          "another --out")
    return foreign_notices(out, RUN.foreign(out))


def foreign_notices(out: Path, foreign: Iterable[Path]) -> list[Notice]:
    """A notice that lists files of others in a folder, if there are any."""
    names = [str(path.relative_to(out)) for path in foreign]
    if not names:
        return []
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return [Notice(f"{out} also contains {', '.join(names[:MAX_NAMES])}{more}; files that halflabel did not write are "
                   "kept")]


def check_apart(out: Path, inputs: Iterable[str | Path | None], kind: FolderKind | None = None) -> None:
    """Refuses an output that would replace an input, by links as well; with a kind, its files in a folder count."""
    target = real(out)
    replaced = {_identity(path): path for path in ([target] if kind is None else contents(target, kind))}
    for path in (path for path in inputs if path is not None):
        inside = target.is_file() and real(Path(path)) in target.parents
        if (identity := _identity(path)) is not None and (identity in replaced or inside):
            what = out if inside or kind is None else out / replaced[identity].relative_to(target)
            raise OutputError(f"{what} would be replaced, but it is an input ({path}); choose another --out")


def contents(folder: Path, kind: FolderKind) -> list[Path]:
    """A folder, its files of a kind, and everything below those."""
    return [folder, *(path for top in kind.ours(folder) for path in (top, *top.rglob("*")))] if folder.is_dir() else []


def model_files(folder: Path) -> list[Path]:
    """The files of a trained, exported or distilled model."""
    return [path for kind in (RUN, EXPORT, STUDENT) for path in contents(folder, kind)[1:]]


def _identity(path: str | Path) -> tuple[int, int] | None:
    try:
        status = os.fstat(0) if str(path) == STDIN else os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def looks_like_run(folder: Path) -> bool:
    """Whether the folder contains a run or a model that halflabel wrote."""
    run, config = _read_object(folder / "run.json"), _read_object(folder / "config.json")
    return {"settings", "texts"} <= run.keys() or {"format", "method"} <= config.keys()


def _read_object(file: Path) -> dict[str, object]:
    """The JSON object in a file; empty if there is none that can be read."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
