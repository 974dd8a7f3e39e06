"""`halflabel suggest`: which texts to label next; `halflabel label`: a page on which one person labels them."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from halflabel.cli import console, options
from halflabel.cli.folders import FORMATS, check_apart, check_output, model_files, open_model, output, with_vectors
from halflabel.cli.serve import LOCAL, check_answers, check_server, open_answers
from halflabel.errors import DataError, ModelError, SettingError
from halflabel.notices import Dropped

if TYPE_CHECKING:
    from halflabel.data.annotators import AnswerFile
    from halflabel.data.corpus import Corpus, Label
    from halflabel.labelling import Learner
    from halflabel.persistence.model_folder import Model
    from halflabel.suggestions import Suggestion

def suggest(
    files: Annotated[list[str], options.argument(
        metavar="[MODEL] POOL...", help="Folder of a model, then files or globs of texts; with --encoder only texts.")],
    *,
    n: Annotated[int, options.option("--n", metavar="N", help="Texts to suggest.")] = 50,
    strategy: Annotated[str, options.option(
        metavar="NAME", help="balanced (doubt, diversity, class balance and density), uncertainty, diverse or random.",
    )] = "balanced",
    labelled: Annotated[list[Path] | None, options.plain(
        metavar="FILE", help="Texts that are labelled already, beside the model's own; may be repeated.")] = None,
    encoder: Annotated[str | None, options.plain(
        metavar="NAME|PATH", help="Start without a model: suggest texts that represent the pool, by this encoder.",
    )] = None,
    out: Annotated[Path | None, options.option(metavar="FILE", help="Output file.",
                                               show_default="standard output")] = None,
    format: Annotated[str | None, options.option(
        metavar="|".join(FORMATS), help="Output format.", show_default="by the suffix of --out, else jsonl")] = None,
    seed: options.Seed = None,
    backend: options.Backend = None,
    text_column: options.TextColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    force: options.ForceFile = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Suggest which texts to label next.

    Each suggestion is a row with the columns text, guess, probability and reason, the most useful first. Texts that
    are labelled already are left out.

    \b
    halflabel suggest model pool.csv --n 50 --out next.csv
    halflabel suggest pool.csv --encoder minilm --n 50 --out first.csv
    """
    from halflabel.active_learning import find_strategy
    from halflabel.data.pool import open_pool
    from halflabel.data.readers.files import as_files, check_streams
    from halflabel.data.readers.read import read

    find_strategy(strategy)
    if n < 1:
        raise SettingError(f"--n {n} is not a number of texts to suggest; give 1 or more")
    model, pool_files = split_arguments(files, encoder)
    sources, labelled_files = as_files(pool_files), as_files(labelled or [])
    check_streams([*sources, *labelled_files])
    inputs: list[Any] = [file.path for file in (*sources, *labelled_files)]
    if out is not None:
        check_apart(out, [*inputs, *(model_files(model) if model is not None else [])])
    kind = check_output(out, format, force=force)
    known = [text for file in labelled_files for text in read(file, text=text_column, labels=False).texts]
    pool, notices = open_pool(sources, text=text_column)
    with console.meter() as meter:
        found, more = find_suggestions(model, encoder, backend, pool.texts, n, strategy, labelled=known, seed=seed or 0,
                           source=pool.source, progress=lambda done, total: meter.show("predicting", done, total))
    console.note(*(notice for notice in notices if isinstance(notice, Dropped)), *more)
    with output(out, kind) as write:
        write([suggestion_row(suggestion) for suggestion in found])
    if out is not None:
        console.say(f"{len(found):,} text{'s' * (len(found) != 1)} to label written to {out}")


def split_arguments(files: Sequence[str], encoder: str | None) -> tuple[Path | None, Sequence[str]]:
    """The folder of the model, None for a cold start, and the files of the pool."""
    is_model = any((Path(files[0]) / name).is_file() for name in ("config.json", "export.json"))
    if encoder is not None:
        if is_model:
            raise SettingError(f"{files[0]} is a model, which has its own encoder; leave out --encoder")
        return None, files
    if len(files) < 2:
        raise SettingError("name a pool after the model: halflabel suggest MODEL POOL" if is_model else
                           "name a model before the pool, or give --encoder to start without a model")
    if not is_model:
        raise ModelError(f"{files[0]} is not the folder of a model; name one that `halflabel train` wrote, or give "
                         "--encoder to start without a model")
    return Path(files[0]), files[1:]


def find_suggestions(model: Path | None, encoder: str | None, backend: str | None, *arguments: Any,
                     **named: Any) -> Any:
    """Suggestions by the model in a folder, or by an encoder alone."""
    from halflabel import suggestions

    if model is not None:
        from halflabel.persistence.model_folder import read_text_hashes

        opened = with_vectors(open_model(model, backend), model)
        return suggestions.suggest(*arguments, model=opened, vectors=opened.vectors,
                                   labelled_hashes=read_text_hashes(model)["labelled"], **named)
    if backend is not None:
        raise SettingError("--backend is for models; leave it out with --encoder")
    from halflabel.encoders.loading import load_encoder
    from halflabel.fitting import vector_cache

    return suggestions.suggest(*arguments, vectors=vector_cache(load_encoder(str(encoder))), **named)


def suggestion_row(suggestion: Suggestion) -> dict[str, Any]:
    """A suggestion as a row of a file; several guessed labels as a list."""
    guess = suggestion.guess
    return suggestion._asdict() | {"guess": list(guess) if isinstance(guess, tuple) else guess}


def label(
    pool: Annotated[list[str], options.argument(metavar="POOL", help="Files or globs of texts to label.")],
    *,
    out: Annotated[Path, options.plain(
        metavar="FILE", help="File of answers (.jsonl); if it exists, labelling goes on where it ended.")],
    model: Annotated[Path | None, options.plain(
        metavar="DIR", help="Folder of a model whose classes are the labels, and whose guesses choose the texts.",
    )] = None,
    names: Annotated[Path | None, options.plain(
        metavar="FILE", help='Labels and what they mean in words, as JSON such as {"billing": "invoices and refunds"}; '
                             "gives guesses before any answer.")] = None,
    labels: Annotated[str | None, options.plain(metavar="A,B,C", help="Labels; more can be added on the page.")] = None,
    several: Annotated[bool, options.option("--several", help="A text may have several labels, or none.")] = False,
    labelled: Annotated[list[Path] | None, options.plain(
        metavar="FILE", help="Texts that are labelled already, to learn from; may be repeated.")] = None,
    retrain_every: Annotated[int, options.option(
        metavar="N", min=1, help="Answers after which guesses and the choice of texts are renewed.")] = 10,
    encoder: Annotated[str | None, options.option(
        metavar="NAME|PATH", show_default="the model's, else minilm", help="Text encoder.")] = None,
    host: Annotated[str, options.option(metavar="HOST", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, options.option(metavar="PORT", min=0, max=65535, help="Port to listen at; 0 for a free one.")
                    ] = 8001,
    token: Annotated[str | None, options.option(
        metavar="TOKEN", show_default="a random one", help="Token in the address of the page that every request needs; "
                                                           "better set as HALFLABEL_LABEL_TOKEN.")] = None,
    seed: options.Seed = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    encoding: options.Encoding = None,
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    config: options.Config = None,
) -> None:
    """Label texts on a page in the browser, the most useful ones first.

    Each answer is on disk before the next text is shown; `halflabel train` reads the file at any time. Ctrl-C ends it,
    and the same command resumes.

    \b
    halflabel label pool.csv --labels billing,bug,other --out labels.jsonl
    halflabel label pool.csv --model model --out more.jsonl
    """
    check_server(token)
    from halflabel.data.pool import open_pool
    from halflabel.data.readers.files import as_files, check_streams
    from halflabel.serve.server import bind

    check_answers(out, "--out")
    if model is not None and encoder is not None:
        raise SettingError(f"{model} has its own encoder; leave out --encoder")
    sources, labelled_files = as_files(pool), as_files(labelled or [])
    check_streams([*sources, *labelled_files])
    check_apart(out, [file.path for file in (*sources, *labelled_files)])
    # the port first: it is known at once whether it can be used, the rest takes a while
    with bind(host, port) as bound, open_answers(out) as answers:
        texts, _ = open_pool(sources, text=text_column)
        earlier = read_earlier(labelled_files, model, text_column, label_column)
        opened = open_for(model)
        if several and opened is not None and opened.task == "multi-class":
            raise SettingError(f"{model} gives one label per text; leave out --several, or --model")
        session = make_session(texts, answers, choose_labels(opened, earlier, names, labels, answers), earlier, model,
                               several=several or (opened is not None and opened.task == "multi-label"),
                               retrain_every=retrain_every, seed=seed or 0)
        learner = make_learner(session, opened, model, encoder, names, seed or 0)
        session.start(learner, opened, retrain=opened is None or earlier is not None)
        serve_page(session, bound, token or secrets.token_urlsafe(12), host)
        count = len(answers.labels)
    if count:
        command = shlex.join(["halflabel", "train", str(out), "--unlabelled", *pool[:1], "--out", "model"])
        console.say(f"{count:,} text{'s are' if count > 1 else ' is'} labelled in {out}; next: {command}")


def read_earlier(files: list[Any], model: Path | None, text_column: str | None, label_column: str | None
                 ) -> Corpus | None:
    """Texts that were labelled before: those of the files, and those that the model's folder keeps."""
    from halflabel.data.cleaning import clean
    from halflabel.data.readers.read import concat_corpora, read
    from halflabel.persistence.model_folder import kept_labelled

    kept = None if model is None else kept_labelled(model)
    corpora = [*([] if kept is None else [kept]), *(read(file, text=text_column, label=label_column) for file in files)]
    if model is not None and not corpora:
        console.note(f"{model} does not have its labelled texts, so its guesses do not learn from answers; give the "
                     "texts with --labelled")
    if not corpora:
        return None
    corpus, notices = clean(concat_corpora(corpora).labelled(), role="labelled")
    console.note(*notices)
    return corpus


def open_for(model: Path | None) -> Any:
    """The model in a folder, which has to have vectors."""
    if model is None:
        return None
    return with_vectors(open_model(model), model)


def choose_labels(model: Model | None, earlier: Corpus | None, names: Path | None, labels: str | None,
                  answers: AnswerFile) -> list[Label]:
    """The labels of the page, from the model, earlier labels and options; those of a model have to be among them."""
    from halflabel.class_names import read_names
    from halflabel.data.labels import first_inconsistency, names_in, parse_label

    known = {str(name): name for name in (() if model is None else model.classes.names)}
    known |= {str(name): name for label in (() if earlier is None else earlier.labels) for name in names_in(label)}
    answered = [*answers.added, *(name for label in answers.labels.values() for name in names_in(label))]
    listed = [label.strip() for label in (labels or "").split(",") if label.strip()]
    phrased = [] if names is None else list(read_names(names))
    for source, words in (("--labels", listed), (str(names), phrased), (str(answers.file), list(map(str, answered)))):
        if model is not None and words and not known.keys() & set(words):
            raise DataError(f"{source} has other labels ({', '.join(words[:3])}) than the model "
                            f"({', '.join(list(known)[:3])}); give a model of the same classes")
    numbers = any(isinstance(name, int) for name in known.values())
    known |= {word: int(word) if numbers and word.isdecimal() else parse_label(word)  # type: ignore[misc]
              for word in (*listed, *phrased) if word not in known}
    if inconsistency := first_inconsistency([*known.values(), *answered]):
        raise DataError(f"{answers.file if answered else 'the labels'}: {inconsistency[1]}")
    return list(known.values())


def make_session(texts: Corpus, answers: AnswerFile, labels: list[Label], earlier: Corpus | None, model: Path | None,
                 **settings: Any) -> Any:
    """The labelling session; texts that are labelled already are not shown."""
    from halflabel.labelling import Labelling
    from halflabel.persistence.model_folder import read_text_hashes

    if model is not None:
        settings["labelled_hashes"] = read_text_hashes(model)["labelled"]
    labelled = {} if earlier is None else dict(zip(earlier.texts, earlier.labels, strict=True))
    return Labelling(texts.texts, answers, labels, labelled=labelled, source=texts.source, report=console.note,
                     **settings)


def make_learner(session: Any, model: Any, folder: Path | None, encoder: str | None, names: Path | None, seed: int
                 ) -> Learner:
    """A learner that knows a sample of the pool; encoding it takes a while the first time."""
    from halflabel.class_names import name_vectors, phrases_for, read_names
    from halflabel.encoders.loading import load_encoder
    from halflabel.fitting import vector_cache
    from halflabel.labelling import Learner
    from halflabel.plans import plan_named

    loaded = model.encoder if hasattr(model, "encoder") else None
    if model is None:
        plan = plan_named("frozen")
        loaded = load_encoder(encoder or plan.encoder, plan.max_tokens)
    vectors = model.vectors if loaded is None else vector_cache(loaded)
    phrases = {} if names is None else read_names(names)
    texts = session.sample()
    with console.meter() as meter:
        encoded = vectors(texts, lambda done, total: meter.show("encoding texts", done, total))
    return Learner(texts, encoded, several=session.several, names=phrases, seed=seed, name_vectors=None
                   if loaded is None else lambda classes: name_vectors(loaded, phrases_for(classes, phrases)))


def serve_page(session: Any, bound: Any, token: str, host: str) -> None:
    """Serves the page until Ctrl-C."""
    from halflabel.serve.label_app import create_label_app
    from halflabel.serve.server import BACKLOG, address_of, run

    app = create_label_app(session, token=token, local=host in LOCAL)
    bound.listen(BACKLOG)
    console.hint(f"open {address_of(bound)}/#{token} in a browser; Ctrl-C ends labelling")
    run(app, bound, reload=lambda: None)
