"""The report of a model from the facts about it: one HTML file without network, a model card with the metadata block of
the Hugging Face hub, and pushing a model there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from halflabel.bench.document import DataTable, Document, Element, Figure, Heading, Paragraph, Quote, TableCell
from halflabel.bench.figures import BLUE, GREY, INK, RED, SOFT, draw
from halflabel.errors import ModelError, OutputError
from halflabel.evaluation.confidence import COVERAGE, accuracy_by_coverage, reliability
from halflabel.integrity import CHECKSUMS
from halflabel.output_folders import MODEL
from halflabel.report.facts import Evaluation, Example, ReportFacts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_CLASSES = 20  # in a picture: those that are confused most
MAX_ROWS = 200  # of a table
MAX_ERRORS = 15  # label errors that are listed
BINS = 10  # of a reliability curve
EVEN = 0.6  # drift up to which pool and labelled texts are alike
STRONG = 0.2  # change of a probability that has the full colour, unless another word of the text has a larger one
FAINT = 0.1  # share of that below which a word is not marked
KINDS = {"right": "Right, and sure", "wrong": "Wrong, but sure", "unsure": "Least sure"}
BASE_MODELS = {"minilm": "sentence-transformers/all-MiniLM-L6-v2"}
CARD_CLASSES = 30  # that a card lists
MESSAGE = "Upload a halflabel model"
REMEDY = "check the network, the name of the repository and the token (`hf auth login`, or HF_TOKEN)"


def page(facts: ReportFacts) -> str:
    """The report as HTML."""
    return document(facts).html()


def document(facts: ReportFacts) -> Document:
    """The report."""
    sections = (training, accuracy, trust, example_texts, labels, pool)
    return Document(f"Report on the model {facts.name}", lead(facts),
                    [element for section in sections for element in section(facts)])


def lead(facts: ReportFacts) -> str:
    """The report in one paragraph."""
    classes = len(facts.model.classes)
    result = "Its accuracy was not measured: no text with a known label was held out."
    if facts.several is not None:
        result = f"It reaches a micro F1 of **{facts.several['micro_f1']:.3f}** on {facts.several['source']}."
    elif facts.accuracy is not None and facts.interval is not None:
        correct, n, source = facts.accuracy
        low, high = facts.interval
        result = (f"It is right about **{correct / n:.1%}** of the texts (95% interval {low:.1%} to {high:.1%}), "
                  f"measured on {n:,} {'texts of ' if facts.evaluation and facts.evaluation.texts else ''}{source}.")
    return f"A classifier of texts into {classes} classes. {result}"


def training(facts: ReportFacts) -> Iterator[Element]:
    """What the model was trained on, and how."""
    model = facts.model
    recorded, run, plan = model.facts, model.facts.get("run", {}), model.facts.get("plan", {})
    rows = [("labelled texts", f"{model.shape.labelled:,}"), ("unlabelled texts", f"{model.shape.unlabelled:,}"),
            ("method", model.method), ("plan", plan.get("name", "unknown")),
            ("encoder", str(recorded.get("encoder", "unknown"))), ("seed", str(recorded.get("seed", "unknown"))),
            ("training took", f"{run['seconds']:,.0f} s" if "seconds" in run else "unknown"),
            ("written", f"{facts.written}, by halflabel {facts.version}")]
    yield Heading("Training", id="training")
    yield DataTable(("what", ""), rows, text_columns=2)
    for notice in run.get("notices", []):
        yield Paragraph(f"Notice: {notice}")


def accuracy(facts: ReportFacts) -> Iterator[Element]:
    """Accuracy, the table of classes, the confusion matrix and the learning curve."""
    yield Heading("Accuracy", id="accuracy")
    if facts.several is not None:
        yield Paragraph("A text may have several labels. Metrics on " + facts.several["source"] + ":")
        names = {"micro_f1": "micro F1", "macro_f1": "macro F1", "exact_match": "all labels right", "lrap": "LRAP"}
        yield DataTable(("metric", "value"), [(name, f"{facts.several[key]:.3f}") for key, name in names.items()
                                              if key in facts.several])
        yield class_table(facts.several["per_label"])
        return
    if facts.evaluation is None:
        yield Paragraph("Give a test file, or the labelled texts of a model with a frozen encoder, for a table of "
                        "classes, a confusion matrix and a reliability curve.")
        return
    if not facts.evaluation.texts:
        yield Paragraph("There is no test file, so these figures are those of logistic regression on the model's "
                        "vectors, fitted without the text that it predicts; the model itself also uses the pool.")
    yield class_table(facts.evaluation.figures["per_label"])
    yield confusion_matrix(facts.evaluation)
    if facts.curve:
        yield learning_curve(facts)


def class_table(per_label: dict[str, dict[str, float]]) -> DataTable:
    """Precision, recall and F1 of each class, the worst first."""
    rows = sorted(per_label.items(), key=lambda item: item[1]["f1"])
    return DataTable(("class", "texts", "precision", "recall", "F1"), [
        (name, f"{row['n']:,}", f"{row['precision']:.3f}", f"{row['recall']:.3f}",
         TableCell(f"{row['f1']:.3f}", mark="bad" if row["f1"] < 0.5 and row["n"] else ""))
        for name, row in rows[:MAX_ROWS]])


def confusion_matrix(evaluation: Evaluation) -> Figure:
    """How often each class is taken for each other one; of many classes, those that are confused most."""
    k = len(evaluation.names)
    counts = np.zeros((k, k), dtype=np.int64)
    np.add.at(counts, (evaluation.truth, evaluation.predicted), 1)
    wrong = counts.sum(axis=0) + counts.sum(axis=1) - 2 * np.diag(counts)
    shown = np.sort(np.argsort(-wrong, kind="stable")[:MAX_CLASSES])
    names = [short(str(evaluation.names[i])) for i in shown]
    shares = counts[np.ix_(shown, shown)] / np.maximum(counts[shown].sum(axis=1, keepdims=True), 1)

    def panel(ax: Axes) -> None:
        from matplotlib.patches import Rectangle

        for (i, j), share in np.ndenumerate(shares):
            if share:
                ax.add_patch(Rectangle((j - 0.47, i - 0.47), 0.94, 0.94, linewidth=0,
                                       color=BLUE if i == j else RED, alpha=0.12 + 0.7 * float(share)))
                if share >= 0.005:
                    ax.text(j, i, f"{share:.0%}", ha="center", va="center", fontsize=7.5, color=INK)
        ax.set(xlim=(-0.5, len(shown) - 0.5), ylim=(len(shown) - 0.5, -0.5), xlabel="predicted", ylabel="true",
               aspect="equal")
        ax.set_xticks(range(len(shown)), names, rotation=90 if len(shown) > 5 else 0)
        ax.set_yticks(range(len(shown)), names)
        ax.grid(visible=False)
        ax.spines["bottom"].set_visible(False)

    side = max(3.6, 0.42 * len(shown) + 1.6)
    what = "all classes" if k <= MAX_CLASSES else f"the {MAX_CLASSES} of {k} classes that are confused most"
    return Figure(draw([panel], alt="Confusion matrix", size=(side, side)),
                  f"Confusion matrix of {what}: the share of a true class (row) that is predicted as each class "
                  "(column). Right predictions are blue, wrong ones red.")


def learning_curve(facts: ReportFacts) -> Figure:
    """Accuracy with fewer labels."""
    points = facts.curve

    def panel(ax: Axes) -> None:
        x = [point.labels for point in points]
        ax.fill_between(x, [p.lowest for p in points], [p.highest for p in points], color=BLUE, alpha=0.2, linewidth=0)
        ax.plot(x, [point.accuracy for point in points], "o-", color=BLUE, markersize=4)
        if facts.evaluation is not None:
            ax.axhline(float(facts.evaluation.correct.mean()), color=RED, linestyle="--", linewidth=1.2)
            ax.annotate("this model", (x[0], float(facts.evaluation.correct.mean())), xytext=(0, 4),
                        textcoords="offset points", color=RED)
        ax.set(xlabel="labelled texts", ylabel="accuracy", xlim=(0, x[-1] * 1.03))

    return Figure(draw([panel], alt="Learning curve", size=(5.0, 2.9)),
                  "Learning curve: logistic regression on the model's vectors with a part of the labels, without the "
                  "pool. Where it still rises at its end, more labels will help.")


def trust(facts: ReportFacts) -> Iterator[Element]:
    """Reliability, coverage, and how labels, pool and names were used."""
    model, start = facts.model, facts.model.facts.get("start", {})
    if model.task == "multi-label":
        return
    yield Heading("How far it can be trusted", id="trust")
    if (evaluation := facts.evaluation) is not None:
        error = evaluation.figures["calibration_error"]
        yield Paragraph(f"The expected calibration error is **{error:.3f}**: by so much confidence and accuracy differ "
                        f"on average. The mean confidence is {evaluation.confidence.mean():.1%}, the accuracy "
                        f"{evaluation.correct.mean():.1%}.")
        yield reliability_and_coverage(evaluation)
    if "trust" in start:
        used = ["the encoder was first fine-tuned on the labelled texts by contrast"] if start.get("contrast") else []
        used += [f"clusters in the pool count for {start['trust']:.0%} of its soft labels",
                 f"words of the pool were {'used' if start['uses_words'] else 'not used'}",
                 f"class names were {'used' if start['uses_names'] else 'not used'}"]
        yield Paragraph(f"Held-out labels decided what to rely on: {'; '.join(used)}. "
                        + (f"Of {start['held_out']:,} labelled texts that were held out, {start['held_out_correct']:,} "
                           "were predicted right." if start["held_out"] else "No label was held out."))
    if model.temperature != 1.0:
        yield Paragraph(f"Scores are divided by a temperature of {model.temperature:.3g}, so that the model is on "
                        "average as sure of the pool as held-out labels allow.")
    if model.unknown is not None:
        yield Paragraph("Texts that belong to no class can be left without a label: `halflabel predict --unknown`.")


def reliability_and_coverage(evaluation: Evaluation) -> Figure:
    """Accuracy by confidence, and accuracy of the surest texts."""
    confidence, correct = evaluation.confidence, evaluation.correct

    def curve(ax: Axes) -> None:
        ax.set_title("Reliability")
        bins = reliability(confidence, correct, BINS)
        ax.plot([0, 1], [0, 1], "--", color=GREY, linewidth=1.0)
        ax.plot([b.confidence for b in bins], [b.accuracy for b in bins], "-", color=BLUE, linewidth=1.6)
        ax.scatter([b.confidence for b in bins], [b.accuracy for b in bins], color=BLUE, zorder=3,
                   s=[12 + 130 * b.texts / len(confidence) for b in bins])
        ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.04), ylim=(0, 1.04))

    def coverage(ax: Axes) -> None:
        ax.set_title("Coverage")
        shares, values = accuracy_by_coverage(confidence, correct)
        rows = np.unique(np.linspace(0, len(shares) - 1, 200).astype(np.int64))
        rows = rows[shares[rows] >= min(0.05, float(shares[-1]))]
        ax.plot(shares[rows], values[rows], color=BLUE, linewidth=1.6)
        ax.axhline(float(correct.mean()), color=GREY, linestyle="--", linewidth=1.0)
        ax.annotate("all texts", (0.02, float(correct.mean())), xytext=(0, -10), textcoords="offset points", color=SOFT)
        ax.set(xlabel="share of texts, the surest first", ylabel="accuracy", xlim=(0, 1.02),
               ylim=(max(0.0, float(values[rows].min()) - 0.08), 1.01))

    alt = "Reliability curve, and accuracy by coverage"
    return Figure(draw([curve, coverage], alt=alt, columns=2, size=(4.2, 3.2)),
                  "Left: accuracy of texts of similar confidence; on the dashed line probabilities mean what they say, "
                  "and larger dots are more texts. Right: accuracy if only the surest texts get a label.")


def example_texts(facts: ReportFacts) -> Iterator[Element]:
    """Examples with the words that speak for and against the prediction."""
    if not facts.examples:
        return
    yield Heading("Examples", id="examples")
    yield Paragraph("Each word was left out in turn: the probability of the predicted class falls without a green word "
                    "and rises without a red one. As a check, the three greenest are deleted together.")
    for kind, title in KINDS.items():
        chosen = [example for example in facts.examples if example.kind == kind]
        if chosen:
            yield Heading(title, level=3)
        for example in chosen:
            yield quote(example)


def quote(example: Example) -> Quote:
    """An example with its words marked."""
    explanation, text = example.explanation, example.text
    largest = max([STRONG, *(abs(reason.change) for reason in explanation.reasons)])
    parts, end = [], 0
    for reason in explanation.reasons:
        weight = reason.change / largest
        parts += [(text[end : reason.start], 0.0),
                  (text[reason.start : reason.end], weight if abs(weight) >= FAINT else 0.0)]
        end = reason.end
    verdict = "" if example.label == example.predicted else f", but its label is **{example.label}**"
    deleted = len(explanation.strongest(3))
    return Quote([*parts, (text[end:], 0.0)],
                 f"predicted **{example.predicted}** ({explanation.probability:.0%}){verdict}",
                 f"without its {deleted} strongest words: {explanation.without:.0%}" if deleted else "")


def labels(facts: ReportFacts) -> Iterator[Element]:
    """Labels that are likely wrong."""
    if facts.label_errors is None:
        return
    yield Heading("Labels that may be wrong", id="labels")
    found = facts.label_errors
    if not found:
        yield Paragraph("None: no labelled text looks more like another class to a classifier that did not see it.")
        return
    yield Paragraph(f"{len(found):,} of {facts.model.shape.labelled:,} labelled texts look more like another class to "
                    "a classifier that did not see them. Look at the first ones again.")
    yield DataTable(("text", "label", "looks like", "score"), [
        (short(text, 160), str(given), str(suggested), f"{score:.2f}") for text, given, suggested, score
        in found[:MAX_ERRORS]], text_columns=3)


def pool(facts: ReportFacts) -> Iterator[Element]:
    """The pool: its classes, and how it differs from the labelled texts."""
    if facts.pool is None:
        return
    yield Heading("The pool", id="pool")
    found, names = facts.pool, facts.model.classes.names
    sentences = [f"Shares of predicted classes in {found.texts:,} unlabelled texts."]
    if found.drift is not None:
        sentences.append(f"A classifier tells pool and labelled texts apart with an AUROC of **{found.drift:.2f}** "
                         "(0.5: not at all), so " + ("they are alike." if found.drift <= EVEN else "they differ: what "
                                                     "was measured on labelled texts may not hold for the pool."))
    if found.unknown is not None:
        sentences.append(f"**{found.unknown:.1%}** of the pool is farther from all classes than {COVERAGE:.0%} of the "
                         "labelled texts are; much more than "
                         f"{1 - COVERAGE:.0%} means that it contains texts of no class.")
    yield Paragraph(" ".join(sentences))
    given = facts.labelled
    order = np.argsort(-found.shares, kind="stable")[:MAX_ROWS]
    head = ("class", "pool") if given is None else ("class", "pool", "labelled")
    yield DataTable(head, [(str(names[k]), f"{found.shares[k]:.1%}",
                            *(() if given is None else (f"{given[k] / max(1, given.sum()):.1%}",))) for k in order])


def short(text: str, limit: int = 22) -> str:
    """The text on one line, cut at a limit."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def model_card(facts: ReportFacts) -> str:
    """The card as Markdown."""
    from huggingface_hub import EvalResult, ModelCardData

    model = facts.model
    encoder = str(model.facts.get("encoder", ""))
    base = BASE_MODELS.get(encoder, encoder if not Path(encoder).exists() and encoder.count("/") <= 1 else None)
    results = None
    if facts.evaluation is not None and facts.evaluation.texts:
        figures, source = facts.evaluation.figures, Path(facts.evaluation.source).name
        results = [EvalResult(task_type="text-classification", dataset_type="text", dataset_name=source,
                              metric_type=kind, metric_value=round(figures[key], 4), metric_name=name)
                   for kind, key, name in (("accuracy", "accuracy", "Accuracy"), ("f1", "macro_f1", "Macro F1"))]
    data = ModelCardData(library_name="halflabel", pipeline_tag="text-classification", base_model=base or None,
                         tags=["halflabel", "text-classification", "semi-supervised"],
                         model_name=facts.name if results else None, eval_results=results)
    return f"---\n{data.to_yaml()}\n---\n\n{body(facts)}"


def body(facts: ReportFacts) -> str:
    """The card without its metadata."""
    model = facts.model
    names = [str(name) for name in model.classes.names]
    listed = ", ".join(f"`{name}`" for name in names[:CARD_CLASSES])
    more = f" and {len(names) - CARD_CLASSES} more" if len(names) > CARD_CLASSES else ""
    several = "several labels" if model.task == "multi-label" else "one label"
    use = ("from halflabel import TextClassifier\n\n"
           f'classifier = TextClassifier.load("{facts.name}")  # the downloaded folder\nclassifier.predict(["a text"])')
    lines = [f"# {facts.name}",
             f"A text classifier that gives {several} out of {len(names)} to a text: {listed}{more}.",
             "## Use", f"```python\n{use}\n```",
             "## Training", f"Trained by halflabel {facts.version} with the method `{model.method}` on "
             f"{model.shape.labelled:,} labelled and {model.shape.unlabelled:,} unlabelled texts, on the encoder "
             f"`{Path(str(model.facts.get('encoder', 'unknown'))).name}`.", "## Accuracy", measured(facts)]
    if facts.evaluation is not None:
        rows = "\n".join(f"| {name.replace('|', chr(92) + '|')} | {row['n']} | {row['precision']:.3f} | "
                         f"{row['recall']:.3f} | {row['f1']:.3f} |"
                         for name, row in list(facts.evaluation.figures["per_label"].items())[:CARD_CLASSES])
        lines.append("| class | texts | precision | recall | F1 |\n|---|---:|---:|---:|---:|\n" + rows)
    notices = model.facts.get("run", {}).get("notices", [])
    lines += ["## Limits", "The model knows its classes only, and texts like those that it was trained on. "
              "`predict --unknown` leaves texts without a label that are far from all classes."
              if model.unknown is not None else "The model knows its classes only, and texts like those that it was "
              "trained on.", *(f"- {notice}" for notice in notices)]
    return "\n\n".join(lines) + "\n"


def measured(facts: ReportFacts) -> str:
    """One sentence on how good the model is."""
    if facts.several is not None:
        return f"Micro F1 {facts.several['micro_f1']:.3f} on {Path(facts.several['source']).name}."
    if facts.accuracy is None or facts.interval is None:
        return "Not measured: no text with a known label was held out."
    correct, n, source = facts.accuracy
    low, high = facts.interval
    name = Path(source).name if facts.evaluation is not None and facts.evaluation.texts else source
    error = "" if facts.evaluation is None else (
        f" The expected calibration error is {facts.evaluation.figures['calibration_error']:.3f}.")
    return f"Accuracy {correct / n:.1%} (95% interval {low:.1%} to {high:.1%}) on {n:,} texts: {name}.{error}"


def push(folder: Path, repo: str, card: str, *, private: bool = False) -> str:
    """Uploads a finished model with its card as one commit, and returns its address.

    Only the files of the model go: neither logs nor the hashes of training texts.
    """
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    if not (folder / CHECKSUMS).is_file():
        raise ModelError(f"{folder} is not a finished model (no {CHECKSUMS}); let the training end first.")
    files = [file for path in MODEL.ours(folder) for file in ([path] if path.is_file() else sorted(path.rglob("*")))
             if file.is_file()]
    operations = [CommitOperationAdd(file.relative_to(folder).as_posix(), str(file))
                  for file in (*files, folder / CHECKSUMS)]
    operations.append(CommitOperationAdd("README.md", card.encode()))
    api = HfApi()
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        return str(api.create_commit(repo, operations, commit_message=MESSAGE).commit_url)
    except (HfHubHTTPError, HFValidationError, OSError, RuntimeError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise OutputError(f"{repo} could not be pushed ({why[:200]}); {REMEDY}.") from error
