"""`halflabel evaluate`: how good a model is on labelled texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from halflabel.cli import console, options
from halflabel.notices import Notice

if TYPE_CHECKING:
    from halflabel.cli.models import Model
    from halflabel.data.corpus import Corpus, Label
    from halflabel.data.labels import Classes

SHOWN = {"n": "texts", "decision": "decision", "accuracy": "accuracy", "micro_f1": "micro F1", "macro_f1": "macro F1",
         "ranking_loss": "ranking loss", "lrap": "LRAP", "coverage": "coverage", "empty": "texts without a label"}
CHUNK = 4096  # texts with several labels that are measured at a time
NAMED = 10  # labels in a sentence


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
    from halflabel.cli.inputs import ColumnNames, labelled_rows
    from halflabel.cli.models import open_model
    from halflabel.persistence.training_texts import training_text_notices

    fitted = open_model(model, backend)
    corpus, notices = labelled_rows(file, ColumnNames(text_column, label_column), fitted.classes, role="test", unseen=True)
    several = decision is not None or fitted.task == "multi-label"
    figures = measure_several(fitted, corpus, decision) if several else measure(fitted, corpus)
    notices += [*map(Notice, about_unseen(figures["unseen"], corpus)), *training_text_notices(model, corpus)]
    for notice in notices:
        console.note(notice)
    if json:
        console.say_json(figures | {"notices": notices})
        return
    console.facts({name: figures[key] for key, name in SHOWN.items() if key in figures})
    console.table(("label", "texts", "precision", "recall", "F1"),
                  [(name, row["n"], row["precision"], row["recall"], row["f1"])
                   for name, row in figures["per_label"].items()], numbers=4)


def measure(fitted: Model, corpus: Corpus) -> dict[str, Any]:
    """Accuracy and F1 of a model on texts; a label that training never saw is one that it always misses."""
    from halflabel.evaluation.metrics import multi_class

    classes = fitted.classes.extended(corpus.labels)
    with console.meter() as meter:
        scores = fitted.scores(corpus.texts, lambda done, total: meter.show("predicting", done, total))
    truth = classes.matrix(corpus.labels).argmax(axis=1)
    return multi_class(truth, scores.argmax(axis=1), classes.names) | unseen(fitted, classes)


def measure_several(fitted: Model, corpus: Corpus, decision: str | None) -> dict[str, Any]:
    """F1 and ranking figures of a model on texts with several labels, a chunk of texts at a time.

    A label that training never saw is always missed, and ranked below all others.
    """
    import numpy as np

    from halflabel.evaluation.metrics import Tally

    classes = fitted.classes.extended(corpus.labels)
    rule, tally, n = fitted.rules.rule(decision), Tally(len(classes)), len(corpus)
    new = ((0, 0), (0, len(classes) - len(fitted.classes)))
    with console.meter() as meter:
        for start in range(0, n, CHUNK):
            part = slice(start, start + CHUNK)
            scores = fitted.scores(corpus.texts[part])
            given = rule(fitted.rules.probabilities(scores))
            tally.add(classes.matrix(corpus.labels[part]) > 0, np.pad(given, new),
                      np.pad(scores, new, constant_values=-np.inf))
            meter.show("predicting", min(start + CHUNK, n), n)
    return (tally.figures(classes.names) | unseen(fitted, classes)
            | {"decision": rule.name, "decision_fitted_on": rule.fitted_on})


def unseen(fitted: Model, classes: Classes) -> dict[str, Any]:
    """The labels that the model does not know."""
    return {"unseen": list(classes.names[len(fitted.classes) :])}


def about_unseen(names: list[Label], corpus: Corpus) -> list[str]:
    """A sentence that names labels which training never saw, if there are any."""
    if not names:
        return []
    listed = ", ".join(map(str, names[:NAMED])) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    were, count = ("was", "counts") if len(names) == 1 else ("were", "count")
    return [f"{len(names)} of the labels in {corpus.source} {were} not seen in training and {count} as missed: "
            f"{listed}"]
