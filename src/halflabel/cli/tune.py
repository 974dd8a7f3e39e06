"""`halflabel tune`: another decision for a trained model, without training it again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from halflabel.cli import console, options
from halflabel.cli.outputs import check_apart
from halflabel.output_folders import RUN, locked


def tune(
    model: options.Model,
    *,
    dev: Annotated[Path, options.plain(metavar="FILE", help="Labelled texts to fit it on; never the test texts.")],
    decision: Annotated[str, options.option(
        metavar="RULE", help="dev-global, dev-per-label, prior-quantile, top-k or fixed.")] = "dev-global",
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Choose anew which labels a text gets, by labelled texts."""
    from halflabel.evaluation.decisions import check_rule

    check_rule(decision)
    from halflabel.cli.inputs import ColumnNames, labelled_rows
    from halflabel.evaluation.metrics import multi_label
    from halflabel.persistence.model import load
    from halflabel.persistence.model_folder import write_decision

    check_apart(model, [dev], RUN)
    with locked(model, RUN):
        fitted = load(model)
        before = fitted.rules
        corpus, notices = labelled_rows(dev, ColumnNames(text_column, label_column), fitted.classes, role="dev")
        for notice in notices:
            console.note(notice)
        with console.meter() as meter:
            scores = fitted.scores(corpus.texts, lambda done, total: meter.show("predicting", done, total))
        truth, names = fitted.classes.matrix(corpus.labels) > 0, fitted.classes.names
        after = before.tuned(decision, scores, truth, f"{len(corpus)} texts of {corpus.source}")
        write_decision(model, after)
    figures = {"before": multi_label(truth, before(scores), scores, names),
               "after": multi_label(truth, after(scores), scores, names)}
    keys = ("micro_f1", "macro_f1", "empty")
    if json:
        console.say_json({"decision": decision, "was": before.chosen, "n": len(corpus), "notices": notices}
                         | {when: {key: found[key] for key in keys} for when, found in figures.items()})
        return
    console.table(("decision", "micro F1", "macro F1", "texts without a label"),
                  [(name, *(found[key] for key in keys)) for name, found in
                   zip((f"{before.chosen} (before)", f"{decision} (now)"), figures.values(), strict=True)], numbers=3)
    console.hint("measured on the texts that it was fitted on, so new texts will do a little worse")
