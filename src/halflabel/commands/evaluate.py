"""`halflabel evaluate`: how good a model is on labelled texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from halflabel import console
from halflabel.commands import options

if TYPE_CHECKING:
    from halflabel.commands.model import Model
    from halflabel.types import Corpus


def evaluate(
    model: options.Model,
    file: Annotated[Path, options.argument(metavar="FILE", help="Labelled texts; - is standard input.")],
    *,
    backend: options.Backend = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Measure a model on labelled texts."""
    from halflabel.commands.model import open_model
    from halflabel.commands.texts import Columns, labelled_rows

    fitted = open_model(model, backend)
    corpus, notices = labelled_rows(file, Columns(text_column, label_column), fitted.classes, role="test")
    for notice in notices:
        console.note(notice)
    figures = measure(fitted, corpus)
    if json:
        console.say_json(figures | {"notices": notices})
        return
    console.facts({"texts": figures["n"], "accuracy": figures["accuracy"], "micro F1": figures["micro_f1"],
                   "macro F1": figures["macro_f1"]})
    console.table(("label", "texts", "precision", "recall", "F1"),
                  [(name, row["n"], row["precision"], row["recall"], row["f1"])
                   for name, row in figures["per_label"].items()], numbers=4)


def measure(fitted: Model, corpus: Corpus) -> dict[str, Any]:
    """Accuracy and F1 of a model on texts whose labels are all known to it."""
    from halflabel.metrics import multi_class

    with console.meter() as meter:
        scores = fitted.scores(corpus.texts, lambda done, total: meter.show("predicting", done, total))
    truth = fitted.classes.matrix(corpus.labels).argmax(axis=1)
    return multi_class(truth, scores.argmax(axis=1), fitted.classes.names)
