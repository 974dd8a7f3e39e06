"""`halflabel suggest`: which texts to label next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from halflabel.cli import console, options
from halflabel.cli.outputs import FORMATS, check_apart, check_output, model_files, output
from halflabel.errors import ModelError, SettingError
from halflabel.notices import Dropped

if TYPE_CHECKING:
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
    no_header: options.NoHeader = False,
    sheet: options.Sheet = None,
    force: options.ForceFile = False,
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
        found, more = find(model, encoder, backend, pool.texts, n, strategy, labelled=known, seed=seed or 0,
                           source=pool.source, progress=lambda done, total: meter.show("predicting", done, total))
    console.note(*(notice for notice in notices if isinstance(notice, Dropped)), *more)
    with output(out, kind) as write:
        write([row(suggestion) for suggestion in found])
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


def find(model: Path | None, encoder: str | None, backend: str | None, *arguments: Any, **named: Any) -> Any:
    """Suggestions by the model in a folder, or by an encoder alone."""
    from halflabel import suggestions

    if model is not None:
        from halflabel.cli.models import open_model, with_vectors
        from halflabel.persistence.training_texts import read_text_hashes

        opened = with_vectors(open_model(model, backend), model)
        return suggestions.suggest(*arguments, model=opened, vectors=opened.vectors,
                                   labelled_hashes=read_text_hashes(model)["labelled"], **named)
    if backend is not None:
        raise SettingError("--backend is for models; leave it out with --encoder")
    from halflabel.encoders.loading import load_encoder
    from halflabel.fitting import vector_cache

    return suggestions.suggest(*arguments, vectors=vector_cache(load_encoder(str(encoder))), **named)


def row(suggestion: Suggestion) -> dict[str, Any]:
    """A suggestion as a row of a file; several guessed labels as a list."""
    guess = suggestion.guess
    return suggestion._asdict() | {"guess": list(guess) if isinstance(guess, tuple) else guess}
