"""`halflabel evaluate`: measures a model on labelled texts; `halflabel tune`: refits its decision rule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from halflabel.cli import console, options
from halflabel.cli.folders import check_apart, open_model
from halflabel.notices import Notice
from halflabel.output_folders import RUN, locked

if TYPE_CHECKING:
    from halflabel.data.corpus import Corpus, Label
    from halflabel.persistence.model_folder import Model

SHOWN = {"n": "texts", "decision": "decision", "accuracy": "accuracy", "micro_f1": "micro F1", "macro_f1": "macro F1",
         "ranking_loss": "ranking loss", "lrap": "LRAP", "coverage": "coverage", "empty": "texts without a label"}
CHUNK = 4096  # multi-label texts that are measured at a time
MAX_NAMES = 10  # labels listed in a notice
FIGURES = {"micro_f1": "micro F1", "macro_f1": "macro F1", "empty": "texts without a label"}


def evaluate(
    model: options.Model,
    file: Annotated[Path, options.argument(metavar="FILE", help="Labelled test set; - is standard input.")],
    *,
    backend: options.Backend = None,
    device: options.Device = None,
    precision: options.Precision = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    label_column: options.LabelColumn = None,
    decision: options.Decision = None,
    report: Annotated[Path | None, options.plain(
        metavar="FILE", help="Also write a page about the model, as `halflabel report` does.")] = None,
    force: options.ForceFile = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Evaluate a model on a labelled test set.

    Accuracy, micro and macro F1, and precision, recall and F1 of each label; for several labels per text also ranking
    metrics. Labels that training never saw count as missed.

    \b
    halflabel evaluate model test.csv
    halflabel evaluate model test.csv --json
    """
    from halflabel.cli.inputs import labelled_rows
    from halflabel.cli.report import check_outputs, write_page
    from halflabel.persistence.model_folder import training_text_notices

    if report is not None:
        check_outputs([report], [file], model, force=force)
    opened = open_model(model, backend, device=device, precision=precision)
    corpus, notices = labelled_rows(file, text_column, label_column, opened.classes, role="test", unseen=True)
    multilabel = decision is not None or opened.task == "multi-label"
    figures = measure_multilabel(opened, corpus, decision) if multilabel else measure(opened, corpus)
    notices += [*unseen_notices(figures["unseen"], corpus.source), *training_text_notices(model, corpus)]
    console.note(*notices)
    if report is not None:
        write_page(opened, model, corpus, report)
    if json:
        console.say_json(figures | {"notices": notices})
        return
    console.facts({name: figures[key] for key, name in SHOWN.items() if key in figures})
    console.table(("label", "texts", "precision", "recall", "F1"),
                  [(name, row["n"], row["precision"], row["recall"], row["f1"])
                   for name, row in figures["per_label"].items()], numbers=4)


def measure(model: Model, corpus: Corpus) -> dict[str, Any]:
    """Accuracy and F1 of a model on texts with one label each; a label that training never saw is always missed."""
    from halflabel.evaluation.metrics import multi_class

    classes = model.classes.extended(corpus.labels)
    with console.meter() as meter:
        scores = model.scores(corpus.texts, lambda done, total: meter.show("predicting", done, total))
    truth = classes.matrix(corpus.labels).argmax(axis=1)
    figures: dict[str, Any] = multi_class(truth, scores.argmax(axis=1), classes.names)
    return figures | {"unseen": list(classes.names[len(model.classes) :])}


def measure_multilabel(model: Model, corpus: Corpus, decision: str | None) -> dict[str, Any]:
    """F1 and ranking metrics of a model on texts with several labels each, a chunk of texts at a time.

    A label that training never saw is always missed, and ranked below all others.
    """
    import numpy as np

    from halflabel.evaluation.metrics import Tally

    classes = model.classes.extended(corpus.labels)
    rule, tally, n = model.rules.rule(decision), Tally(len(classes)), len(corpus)
    unseen = ((0, 0), (0, len(classes) - len(model.classes)))
    with console.meter() as meter:
        for start in range(0, n, CHUNK):
            chunk = slice(start, start + CHUNK)
            scores = model.scores(corpus.texts[chunk])
            predicted = rule(model.rules.probabilities(scores))
            tally.add(classes.matrix(corpus.labels[chunk]) > 0, np.pad(predicted, unseen),
                      np.pad(scores, unseen, constant_values=-np.inf))
            meter.show("predicting", min(start + CHUNK, n), n)
    return tally.figures(classes.names) | {"unseen": list(classes.names[len(model.classes) :]), "decision": rule.name,
                                           "decision_fitted_on": rule.fitted_on}


def unseen_notices(names: Sequence[Label], source: str) -> list[Notice]:
    """A notice that lists the labels which training never saw, if there are any."""
    if not names:
        return []
    listed = ", ".join(map(str, names[:MAX_NAMES]))
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    were, count = ("was", "counts") if len(names) == 1 else ("were", "count")
    return [Notice(f"{len(names)} of the labels in {source} {were} not seen in training and {count} as missed: "
                   f"{listed}{more}")]


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
