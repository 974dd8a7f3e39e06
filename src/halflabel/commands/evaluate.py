"""`halflabel evaluate`: how good a model is on labelled texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from halflabel import console
from halflabel.commands import options

if TYPE_CHECKING:
    from halflabel.commands.model import Model
    from halflabel.types import Corpus

SHOWN = {"n": "texts", "decision": "decision", "accuracy": "accuracy", "micro_f1": "micro F1", "macro_f1": "macro F1",
         "ranking_loss": "ranking loss", "lrap": "LRAP", "coverage": "coverage", "empty": "texts without a label"}
CHUNK = 4096  # texts with several labels that are measured at a time


def evaluate(
    model: options.Model,
    file: Annotated[Path, options.argument(metavar="FILE", help="Labelled texts; - is standard input.")],
    *,
    backend: options.Backend = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    decision: options.Decision = None,
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
    several = decision is not None or fitted.task == "multi-label"
    figures = measure_several(fitted, corpus, decision) if several else measure(fitted, corpus)
    if json:
        console.say_json(figures | {"notices": notices})
        return
    console.facts({name: figures[key] for key, name in SHOWN.items() if key in figures})
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


def measure_several(fitted: Model, corpus: Corpus, decision: str | None) -> dict[str, Any]:
    """F1 and ranking figures of a model on texts with several labels, a chunk of texts at a time."""
    from halflabel.ranking import Tally

    rule, tally, n = fitted.rules.rule(decision), Tally(len(fitted.classes)), len(corpus)
    with console.meter() as meter:
        for start in range(0, n, CHUNK):
            part = slice(start, start + CHUNK)
            scores = fitted.scores(corpus.texts[part])
            truth = fitted.classes.matrix(corpus.labels[part]) > 0
            tally.add(truth, rule(fitted.rules.probabilities(scores)), scores)
            meter.show("predicting", min(start + CHUNK, n), n)
    return tally.figures(fitted.classes.names) | {"decision": rule.name, "decision_fitted_on": rule.fitted_on}
