"""`halflabel tune`: refits the decision rule of a multi-label model, without training it again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from halflabel.cli import console, options
from halflabel.cli.evaluate import unseen_notices
from halflabel.cli.outputs import check_apart
from halflabel.output_folders import RUN, locked

FIGURES = {"micro_f1": "micro F1", "macro_f1": "macro F1", "empty": "texts without a label"}


def tune(
    model: options.TrainedModel,
    *,
    dev: Annotated[Path, options.plain(metavar="FILE", help="Labelled dev set to fit the rule on, not the test set.")],
    decision: Annotated[str, options.option(
        metavar="RULE", help="dev-global, dev-per-label, prior-quantile, top-k or fixed.")] = "dev-global",
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    label_column: options.LabelColumn = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Refit the decision rule of a multi-label model on a dev set.

    The rule says which labels a text gets; it is saved in the model folder, and the weights stay as they are. Exported
    copies of the model keep the old rule until they are exported again.

    \b
    halflabel tune model --dev dev.csv --decision dev-global
    """
    from halflabel.evaluation.decisions import check_rule

    check_rule(decision)
    import numpy as np

    from halflabel.cli.inputs import labelled_rows
    from halflabel.evaluation.metrics import multi_label
    from halflabel.persistence.model import load
    from halflabel.persistence.model_folder import write_decision

    check_apart(model, [dev], RUN)
    with locked(model, RUN):
        trained = load(model)
        before, known = trained.rules, len(trained.classes)
        corpus, notices = labelled_rows(dev, text_column, label_column, trained.classes, role="dev", unseen=True)
        classes = trained.classes.extended(corpus.labels)
        notices += unseen_notices(classes.names[known:], corpus.source)
        console.note(*notices)
        with console.meter() as meter:
            scores = trained.scores(corpus.texts, lambda done, total: meter.show("predicting", done, total))
        truth = classes.matrix(corpus.labels) > 0
        after = before.tuned(decision, scores, truth[:, :known], f"{len(corpus)} texts of {corpus.source}")
        write_decision(model, after)
    unseen = ((0, 0), (0, len(classes) - known))  # columns of labels that training never saw: always missed
    figures = {when: multi_label(truth, np.pad(rules(scores), unseen), np.pad(scores, unseen, constant_values=-np.inf),
                                 classes.names) for when, rules in (("before", before), ("after", after))}
    if json:
        console.say_json({"decision": decision, "was": before.chosen, "n": len(corpus), "notices": notices}
                         | {when: {key: values[key] for key in FIGURES} for when, values in figures.items()})
        return
    console.table(("decision", *FIGURES.values()),
                  [(name, *(values[key] for key in FIGURES)) for name, values in
                   zip((f"{before.chosen} (before)", f"{decision} (now)"), figures.values(), strict=True)], numbers=3)
    console.hint("measured on the dev set that the rule was fitted on: expect slightly lower figures on new texts")
