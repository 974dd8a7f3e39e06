"""`halflabel demo`: what unlabelled texts add, on the sample corpus."""

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
from halflabel.cli.outputs import about_foreign, check_apart
from halflabel.cli.train import STOPPED
from halflabel.data.corpus import Corpus
from halflabel.errors import BadInput
from halflabel.output_folders import DEMO, RUN, filled, locked, replacing

if TYPE_CHECKING:
    from halflabel.classifier import TextClassifier
    from halflabel.data.splitting import Split

PER_QUEUE = 10
MINUTES = 1.5  # with both trainings and the loading, `make demo` has to stay under three
MARK, MODEL = "demo.json", "model"
WIDTH = 72


def demo(
    *,
    out: Annotated[Path, options.option(metavar="DIR", help="Folder for model and sample texts.")] = Path("demo"),
    plan: options.Plan = None,
    minutes: Annotated[float | None, options.option(help="Time that fine-tuning may take.",
                                                  show_default=f"{MINUTES}")] = None,
    encoder: options.Encoder = None,
    seed: options.Seed = None,
    config: options.Config = None,
) -> None:
    """Train on sample helpdesk messages, with and without unlabelled texts."""
    from halflabel.classifier import TextClassifier
    from halflabel.data.sample import sample
    from halflabel.data.splitting import split_corpus
    from halflabel.training.interrupt import Interrupted

    split, test = split_corpus(sample("train"), per_class=PER_QUEUE, unlabelled=None, seed=seed or 0), sample("test")
    chosen: dict[str, Any] = {"encoder": encoder, "random_state": seed or 0}
    plan = plan or "laptop"
    full = TextClassifier(plan=plan, minutes=MINUTES if minutes is None and plan == "laptop" else minutes, **chosen)
    check_apart(out, [encoder], DEMO)
    check_apart(out / MODEL, [encoder], RUN)
    try:
        with demo_folder(out):
            write_sample(out, split, test)
            figures = [train_one(TextClassifier("ce", plan="frozen", **chosen), split, test, pool=[], folder=None),
                       train_one(full, split, test, pool=split.unlabelled.texts, folder=out / MODEL)]
            write_text(out / MARK, jsonlib.dumps(figures, indent=1))
    except (Interrupted, KeyboardInterrupt):
        console.hint("stopped; nothing was kept")
        raise typer.Exit(STOPPED) from None
    show(figures, split, test, full, out)


def is_demo(folder: Path) -> bool:
    return (folder / MARK).is_file()


@contextmanager
def demo_folder(out: Path) -> Iterator[None]:
    """Replaces an earlier demo, its model included; a failure brings it back, and other files stay."""
    with locked(out, DEMO):
        if filled(out) and not is_demo(out):
            raise BadInput(f"{out} exists and is not from an earlier demo; choose another --out")
        others = [path for path in DEMO.foreign(out) if path.name != MODEL]
        for notice in about_foreign(out, [*others, *RUN.foreign(out / MODEL)]):
            console.note(notice)
        with replacing(out, DEMO), replacing(out / MODEL, RUN, has_result=lambda: is_demo(out)):
            yield


def write_sample(out: Path, split: Split, test: Corpus) -> None:
    """The texts as files that the other commands take, with their queue and their tags."""
    from halflabel.data.sample import sample
    from halflabel.data.writers import open_writer

    tags = {text: ";".join(map(str, label)) for part in (sample("train", "tags"), sample("test", "tags"))
            for text, label in zip(part.texts, part.labels, strict=True) if isinstance(label, tuple)}
    for name, corpus in (("labelled", split.labelled), ("unlabelled", split.unlabelled), ("test", test)):
        with open_writer(out / f"{name}.csv", "csv") as write:
            write([{"text": text} | ({} if label is None else {"label": label, "tags": tags[text]})
                   for text, label in zip(corpus.texts, corpus.labels, strict=True)])


def train_one(clf: TextClassifier, split: Split, test: Corpus, *, pool: Sequence[str],
              folder: Path | None) -> dict[str, Any]:
    """Trains and measures on the held-out part."""
    began = time.monotonic()
    console.hint(f"learning from {len(split.labelled)} labelled and {len(pool):,} unlabelled texts ...")
    with console.meter() as meter:
        clf.fit(split.labelled.texts, split.labelled.labels, pool, folder=folder, report=console.TrainingProgress(meter))
    seconds = time.monotonic() - began
    figures = measure(clf.model_, test)
    return {"method": clf.method_, "labelled": len(split.labelled), "unlabelled": len(pool),
            "accuracy": figures["accuracy"], "macro_f1": figures["macro_f1"], "seconds": round(seconds, 1)}


def show(figures: list[dict[str, Any]], split: Split, test: Corpus, clf: TextClassifier, out: Path) -> None:
    """The table, three predictions, and what to type next."""
    queues = len(set(split.labelled.labels))
    console.say(f"Helpdesk messages in {queues} queues, {PER_QUEUE} labelled messages of each; measured on "
                f"{len(test):,} messages that neither training saw.")
    console.table(("learnt from", "labelled", "unlabelled", "accuracy", "macro F1", "seconds"),
                  [(name, row["labelled"], row["unlabelled"], row["accuracy"], row["macro_f1"],
                    f"{row['seconds']:.0f}")
                   for name, row in zip(("labels only", "labels + unlabelled"), figures, strict=True)], numbers=5)
    rows = first_of_each(test)[:3]
    texts = [test.texts[i] for i in rows]
    for text, found, i in zip(texts, clf.predict(texts), rows, strict=True):
        verdict = "right" if found == test.labels[i] else f"wrong, it is {test.labels[i]}"
        console.say(f"  {text if len(text) <= WIDTH else text[: WIDTH - 3] + '...'}\n    -> {found} ({verdict})")
    folder = shlex.quote(str(out))
    console.say(f"\nThe model is in {out / MODEL}. Try it:")
    console.say(f"  echo 'I cannot log in since this morning' | halflabel predict {folder}/model")
    console.say(f"  halflabel evaluate {folder}/model {folder}/test.csv")
    console.say("On your own texts:")
    console.say("  halflabel train labelled.csv --unlabelled pool.csv --out model")


def first_of_each(corpus: Corpus) -> list[int]:
    """The first text of each label, in their order."""
    return sorted({label: i for i, label in reversed(list(enumerate(corpus.labels)))}.values())
