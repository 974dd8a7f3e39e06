"""`halflabel demo`: shows what unlabelled texts add, on the sample corpus."""

from __future__ import annotations

import json as jsonlib
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halflabel.atomic import write_text
from halflabel.cli import console, options
from halflabel.cli.evaluate import measure
from halflabel.cli.folders import check_apart, foreign_notices
from halflabel.cli.train import STOPPED
from halflabel.data.corpus import Corpus
from halflabel.errors import OutputError
from halflabel.output_folders import DEMO, RUN, filled, locked, replacing

if TYPE_CHECKING:
    from halflabel.classifier import TextClassifier
    from halflabel.data.splitting import Split

PER_CLASS = 10
PLAN = "frozen"  # as accurate on the sample as a few minutes of fine-tuning
MINUTES = 1.5  # of fine-tuning, with --plan laptop
RESULTS, MODEL = "demo.json", "model"
WIDTH = 72  # characters of a text that is shown


def demo(
    *,
    out: Annotated[Path, options.option(metavar="DIR", help="Folder for the model and the texts.")] = Path("demo"),
    plan: Annotated[str | None, options.option(
        metavar="frozen|laptop|paper", show_default=PLAN, help="Training schedule of both models.")] = None,
    minutes: Annotated[float | None, options.option(
        metavar="N", show_default=f"{MINUTES} with the plan laptop",
        help="Time limit for fine-tuning each of the two models.")] = None,
    encoder: options.Encoder = None,
    seed: options.Seed = None,
    config: options.Config = None,
) -> None:
    """Train on sample texts, with and without unlabelled ones.

    Both models have the same plan, method and labelled helpdesk messages; only one of them gets unlabelled messages.
    """
    from halflabel.classifier import TextClassifier
    from halflabel.data.corpus import sample
    from halflabel.data.splitting import split_corpus
    from halflabel.processes import Interrupted

    plan, seed = plan or PLAN, seed or 0
    split, test = split_corpus(sample("train"), per_class=PER_CLASS, unlabelled=None, seed=seed), sample("test")
    limit = MINUTES if minutes is None and plan == "laptop" else minutes
    baseline, clf = (TextClassifier(encoder=encoder, plan=plan, minutes=limit, random_state=seed) for _ in range(2))
    check_apart(out, [encoder], DEMO)
    check_apart(out / MODEL, [encoder], RUN)
    try:
        with demo_folder(out):
            write_sample(out, split, test)
            results = [train_and_measure(baseline, split, test, pool=[], folder=None),
                       train_and_measure(clf, split, test, pool=split.unlabelled.texts, folder=out / MODEL)]
            write_text(out / RESULTS, jsonlib.dumps(results, indent=1))
    except (Interrupted, KeyboardInterrupt):
        console.hint("stopped; nothing was kept")
        raise typer.Exit(STOPPED) from None
    show(results, split, test, clf, out)


def is_demo(folder: Path) -> bool:
    return (folder / RESULTS).is_file()


@contextmanager
def demo_folder(out: Path) -> Iterator[None]:
    """Replaces an earlier demo and its model; a failure restores it, and files of others are kept."""
    with locked(out, DEMO):
        if filled(out) and not is_demo(out):
            raise OutputError(f"{out} exists and is not from an earlier demo; choose another --out")
        foreign = [path for path in DEMO.foreign(out) if path.name != MODEL]
        console.note(*foreign_notices(out, [*foreign, *RUN.foreign(out / MODEL)]))
        with replacing(out, DEMO), replacing(out / MODEL, RUN, has_result=lambda: is_demo(out)):
            yield


def write_sample(out: Path, split: Split, test: Corpus) -> None:
    """Writes the texts as files for the other commands, with their queue (one label) and their tags (several)."""
    from halflabel.data.corpus import sample
    from halflabel.data.readers.formats import open_writer

    tags = {text: ";".join(map(str, label)) for part in (sample("train", "tags"), sample("test", "tags"))
            for text, label in zip(part.texts, part.labels, strict=True) if isinstance(label, tuple)}
    for name, corpus in (("labelled", split.labelled), ("unlabelled", split.unlabelled), ("test", test)):
        with open_writer(out / f"{name}.csv", "csv") as write:
            write([{"text": text} | ({} if label is None else {"label": label, "tags": tags[text]})
                   for text, label in zip(corpus.texts, corpus.labels, strict=True)])


def train_and_measure(clf: TextClassifier, split: Split, test: Corpus, *, pool: Sequence[str],
                      folder: Path | None) -> dict[str, Any]:
    """Trains a classifier and measures it on the test texts."""
    began = time.monotonic()
    console.hint(f"training on {len(split.labelled)} labelled and {len(pool):,} unlabelled texts ...")
    with console.meter() as meter:
        clf.fit(split.labelled.texts, split.labelled.labels, pool, folder=folder,
                report=console.TrainingProgress(meter))
    seconds = time.monotonic() - began
    figures = measure(clf.model_, test)
    return {"method": clf.method_, "labelled": len(split.labelled), "unlabelled": len(pool),
            "accuracy": figures["accuracy"], "macro_f1": figures["macro_f1"], "seconds": round(seconds, 1)}


def show(results: list[dict[str, Any]], split: Split, test: Corpus, clf: TextClassifier, out: Path) -> None:
    """Prints the comparison, three predictions, and the next commands."""
    queues = len(set(split.labelled.labels))
    console.say(f"Helpdesk messages in {queues} queues, {PER_CLASS} labelled messages of each; the same method "
                f"({clf.method_}) and plan ({clf.plan}), measured on {len(test):,} held-out messages.")
    console.table(("trained on", "labelled", "unlabelled", "accuracy", "macro F1", "seconds"),
                  [(name, row["labelled"], row["unlabelled"], row["accuracy"], row["macro_f1"],
                    f"{row['seconds']:.0f}")
                   for name, row in zip(("labels only", "labels + unlabelled"), results, strict=True)], numbers=5)
    rows = first_of_each_label(test)[:3]
    texts = [test.texts[i] for i in rows]
    for text, label, i in zip(texts, clf.predict(texts), rows, strict=True):
        verdict = "right" if label == test.labels[i] else f"wrong, it is {test.labels[i]}"
        console.say(f"  {text if len(text) <= WIDTH else text[: WIDTH - 3] + '...'}\n    -> {label} ({verdict})")
    folder = shlex.quote(str(out))
    console.say(f"\nThe second model is in {out / MODEL}. Try it:")
    console.say(f"  echo 'I cannot log in since this morning' | halflabel predict {folder}/model")
    console.say(f"  halflabel evaluate {folder}/model {folder}/test.csv")
    console.say("On your own texts:")
    console.say("  halflabel train labelled.csv --unlabelled pool.csv --out model")


def first_of_each_label(corpus: Corpus) -> list[int]:
    """The first row of each label, in order."""
    return sorted({label: i for i, label in reversed(list(enumerate(corpus.labels)))}.values())
