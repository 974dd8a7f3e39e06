"""`halflabel export`: exports a model as an ONNX graph that needs no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from halflabel.atomic import real
from halflabel.cli import console, options
from halflabel.cli.models import refuse_untrained
from halflabel.errors import DataError, OutputError
from halflabel.output_folders import LOCK, lock


def export(
    model: options.TrainedModel,
    *,
    onnx: Annotated[Path, options.plain("--onnx", metavar="OUT", help="New folder for ONNX graph and tokenizer.")],
    int8: Annotated[bool, options.option("--int8", help="Quantise to int8: smaller and faster, some labels may change.")
                    ] = False,
    texts: Annotated[Path | None, options.option(
        metavar="FILE", show_default="the sample corpus",
        help="Texts on which the export is compared with the model.")] = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Export a model to ONNX, to predict without torch.

    \b
    halflabel export model --onnx small --int8
    halflabel predict small new.csv
    """
    if onnx.exists():
        raise OutputError(f"{onnx} exists already; choose another --onnx, or remove it first")
    refuse_untrained(model, "exported")
    target = real(onnx)
    with lock(target.with_name(f".{target.name}{LOCK}"), onnx):  # the folder itself appears only when it is complete
        sample = comparison_texts(texts, text_column)
        from halflabel.persistence.model import load
        from halflabel.persistence.onnx_export import export as write

        comparison = write(load(model), onnx, sample, int8=int8)
    megabytes = sum(file.stat().st_size for file in onnx.iterdir()) / 1e6
    if json:
        console.say_json({"out": str(onnx), "int8": int8, "megabytes": round(megabytes, 1), **comparison.to_json()})
        return
    console.facts({
        "exported": f"{onnx} ({megabytes:.1f} MB, {'int8' if int8 else 'fp32'})",
        "compared": f"with the model in fp32 on {comparison.texts} texts",
        "max difference": f"{comparison.scores:.2g} in scores, {comparison.probabilities:.2g} in probabilities",
        "min cosine": f"{comparison.cosine:.6f} between vectors",
        "same labels": f"{comparison.same_labels:.1%} of the texts",
        "next": f"halflabel predict {onnx} FILE"})


def comparison_texts(file: Path | None, text_column: str | None) -> list[str]:
    """Texts to compare on: the first of a file, else of the sample corpus."""
    from halflabel.cli.models import SAMPLE, sample_texts

    if file is None:
        return sample_texts()
    from halflabel.data.readers.read import read

    texts = [text for text in read(file, text=text_column, labels=False).texts if text.strip()][:SAMPLE]
    if not texts:
        raise DataError(f"{file} has no texts to compare on; name another file with --texts")
    return texts
