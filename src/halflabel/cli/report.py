"""`halflabel report`: a page about a model, and a model card; `halflabel push`: a model on the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from halflabel.cli import console, options
from halflabel.cli.folders import check_apart, check_file, model_files
from halflabel.errors import ModelError

if TYPE_CHECKING:
    from halflabel.data.corpus import Corpus
    from halflabel.persistence.model_folder import Model
    from halflabel.report.facts import ReportFacts

CARD = "MODEL_CARD.md"


def report(
    model: options.TrainedModel,
    test: Annotated[Path | None, options.argument(metavar="[TEST]", help="Labelled test set.")] = None,
    *,
    out: Annotated[Path, options.option(metavar="FILE", help="Page to write.", show_default="report.html")
                   ] = Path("report.html"),
    labelled: Annotated[Path | None, options.plain(
        metavar="FILE", help="The labelled training texts: label errors, learning curve, drift.")] = None,
    unlabelled: Annotated[Path | None, options.plain(
        "--unlabelled", "--unlabeled", metavar="POOL", help="The pool: its classes, drift, unknown texts.")] = None,
    card: Annotated[bool, options.option("--card", help=f"Also write {CARD} beside the page.")] = False,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    label_column: options.LabelColumn = None,
    force: options.ForceFile = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Write a page about a model: one HTML file without network.

    Training, accuracy with an interval, classes, confusion matrix, reliability, coverage and examples with the words
    that moved them; with the training texts also label errors, a learning curve and drift. Without a test set, accuracy
    is that on held-out labels.

    \b
    halflabel report model test.csv --out report.html
    halflabel report model --labelled labelled.csv --unlabelled pool.jsonl --card
    """
    from halflabel.atomic import write_text
    from halflabel.report.page import model_card, page

    outputs = [out, out.parent / CARD] if card else [out]
    check_outputs(outputs, [test, labelled, unlabelled], model, force=force)
    facts = gather_facts(model, test, labelled, unlabelled, text_column, label_column)
    html, text = page(facts), model_card(facts) if card else None
    write_text(out, html)
    if text is not None:
        write_text(outputs[1], text)
    console.say(f"written: {' and '.join(map(str, outputs))}")


def push(
    model: options.TrainedModel,
    repo: Annotated[str, options.argument(metavar="REPO_ID", help="Repository on the hub, such as me/my-model.")],
    test: Annotated[Path | None, options.argument(metavar="[TEST]", help="Labelled test set, for the card.")] = None,
    *,
    card: Annotated[Path | None, options.plain(metavar="FILE", help="A card to upload instead of a new one.")] = None,
    private: Annotated[bool, options.option("--private", help="Create a private repository.")] = False,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    label_column: options.LabelColumn = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Upload a model and its card to the Hugging Face hub, as one commit.

    The token is that of `hf auth login`, or HF_TOKEN. Logs and hashes of training texts stay here.

    \b
    halflabel push model me/my-model test.csv
    """
    from halflabel.report.page import model_card
    from halflabel.report.page import push as upload

    facts = gather_facts(model, test, None, None, text_column, label_column)
    text = model_card(facts) if card is None else card.read_text(encoding="utf-8")
    console.say(f"pushed to {upload(model, repo, text, private=private)}")


def write_page(model: Model, folder: Path, test: Corpus, out: Path) -> None:
    """Writes the page of a model that is evaluated on a test set."""
    from halflabel.atomic import write_text
    from halflabel.persistence.model import TrainedModel
    from halflabel.report.facts import collect
    from halflabel.report.page import page

    if not isinstance(model, TrainedModel):
        raise ModelError(f"{folder} is an exported or distilled model, which has no report; give the model that it was "
                         "made from, or leave out --report")
    write_text(out, page(collect(model, folder, test=test)))


def check_outputs(outputs: list[Path], inputs: list[Path | None], model: Path, *, force: bool) -> None:
    """Refuses a missing extra and outputs that cannot be written, before anything is computed."""
    from halflabel.bench.document import require_extra

    require_extra()
    for file in outputs:
        check_apart(file, [*inputs, *model_files(model)])
        check_file(file, force=force)


def gather_facts(folder: Path, test: Path | None, labelled: Path | None, pool: Path | None, text_column: str | None,
                 label_column: str | None) -> ReportFacts:
    """Facts about the model in a folder, from the files that are given."""
    from halflabel.cli.inputs import labelled_rows
    from halflabel.data.cleaning import clean
    from halflabel.data.readers.read import read
    from halflabel.persistence.model import load
    from halflabel.report.facts import collect

    model = load(folder)

    def rows(file: Path | None, role: str, *, unseen: bool) -> Corpus | None:
        if file is None:
            return None
        corpus, notices = labelled_rows(file, text_column, label_column, model.classes, role=role, unseen=unseen)
        console.note(*notices)
        return corpus

    test_rows, labelled_corpus = rows(test, "test", unseen=True), rows(labelled, "labelled", unseen=False)
    texts = None if pool is None else clean(read(pool, text=text_column, labels=False), role="unlabelled")[0]
    with console.meter() as meter:
        return collect(model, folder, test=test_rows, labelled=labelled_corpus, pool=texts,
                       progress=lambda done, total: meter.show("predicting", done, total))
