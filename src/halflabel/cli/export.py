"""`halflabel export`: a model as an ONNX graph that needs no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from halflabel.atomic import real
from halflabel.cli import console, options
from halflabel.errors import BadInput
from halflabel.output_folders import LOCK, lock

TEXTS = 256  # of a file that an export is compared on


def export(
    model: options.Model,
    *,
    onnx: Annotated[Path, options.plain("--onnx", metavar="OUT", help="Folder for the ONNX graph and its tokenizer.")],
    int8: Annotated[bool, options.option("--int8", help="Products in int8: smaller and faster, labels may change.")
                    ] = False,
    texts: Annotated[Path | None, options.option(metavar="FILE", show_default="the sample corpus",
                                               help="Texts on which the export is compared with the model.")] = None,
    text_column: options.TextColumn = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Write a model as one ONNX graph that predicts without torch."""
    if onnx.exists():
        raise BadInput(f"{onnx} exists already; choose another --onnx, or remove it first")
    place = real(onnx)
    with lock(place.with_name(f".{place.name}{LOCK}"), onnx):  # the folder itself appears only when it is whole
        sample = compared(texts, text_column)
        from halflabel.persistence.model import load
        from halflabel.persistence.onnx_export import export as write

        found = write(load(model), onnx, sample, int8=int8)
    size = sum(file.stat().st_size for file in onnx.iterdir()) / 1e6
    if json:
        console.say_json({"out": str(onnx), "int8": int8, "megabytes": round(size, 1), **found.to_json()})
        return
    console.facts({
        "exported": f"{onnx} ({size:.1f} MB, {'int8' if int8 else 'fp32'})",
        "compared": f"with the model in fp32 on {found.texts} texts",
        "max difference": f"{found.scores:.2g} in scores, {found.probabilities:.2g} in probabilities",
        "min cosine": f"{found.cosine:.6f} between vectors",
        "same labels": f"{found.same_labels:.1%} of the texts",
        "next": f"halflabel predict {onnx} FILE"})


def compared(file: Path | None, text_column: str | None) -> list[str]:
    """Texts to compare on: some of a file, else of the sample corpus."""
    if file is None:
        from halflabel.data.sample import sample

        return list(sample("test").texts[:TEXTS])
    from halflabel.data.readers.read import read

    texts = [text for text in read(file, text=text_column, labels=False).texts if text.strip()][:TEXTS]
    if not texts:
        raise BadInput(f"{file} holds no text to compare on; name another file with --texts")
    return texts
