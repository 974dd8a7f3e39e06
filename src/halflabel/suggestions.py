"""Suggests texts of a pool to label next, in memory that does not grow with the pool.

The model scores the pool in chunks, of which only doubt and guess are kept; vectors are computed of a shortlist alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from halflabel.active_learning import STRATEGIES, Candidates, Scores, explain, find_strategy
from halflabel.data.columns import text_hashes
from halflabel.data.corpus import subset
from halflabel.errors import DataError, SettingError
from halflabel.notices import Notice
from halflabel.persistence.model_folder import Model
from halflabel.randomness import Stream, generator
from halflabel.types import Progress

CHUNK = 8192  # texts that are scored at a time
SHORTLIST = 20_000  # texts whose vectors are in memory, at most,
NUMBERS = 2**24  # and the numbers in these vectors


class Predictor(Model, Protocol):
    """What suggestions need of a model."""

    def vectors(self, texts: Sequence[str], progress: Progress | None = None) -> Any: ...


class Suggestion(NamedTuple):
    """A text to label: the model's guess, its probability, and why the text was selected.

    Without a model, guess and probability are None. For several labels per text the guess is a tuple, and the
    probability is that of the most probable label.
    """

    text: str
    guess: Any
    probability: float | None
    reason: str


def suggest(texts: Sequence[str], n: int, strategy: str, *, model: Predictor | None = None,
            vectors: Callable[[Sequence[str]], np.ndarray], labelled: Sequence[str] = (),
            labelled_hashes: Iterable[np.uint64] = (), seed: int = 0, source: str = "the pool",
            progress: Progress | None = None) -> tuple[list[Suggestion], list[Notice]]:
    """The texts to label next, the most useful first, and notices.

    Texts that are labelled already are left out: those in `labelled`, and those with `labelled_hashes`.
    """
    chosen, rng = find_strategy(strategy), generator(seed, Stream.SUGGESTIONS)
    if n < 1:
        raise SettingError(f"n={n} is not a number of texts to suggest; give 1 or more")
    if model is None and strategy == "uncertainty":
        cold = [name for name in STRATEGIES if name != strategy]
        raise SettingError(f"the strategy {strategy} needs a model; choose one of {', '.join(cold)}")
    is_labelled = known_texts(texts, np.union1d(np.fromiter(labelled_hashes, np.uint64), text_hashes(labelled)))
    left = np.flatnonzero(~is_labelled)
    if not len(left):
        raise DataError(f"{source}: {'no text is' if len(texts) else 'there is no text'} left to label; give a pool "
                        "with other texts")
    notices = [Notice(f"only {len(left)} text{'s are' if len(left) > 1 else ' is'} left to label in {source}, so all "
                      "are suggested")] if len(left) < n else []
    n, pool = min(n, len(left)), subset(texts, left)  # type: ignore[arg-type]
    limit = n
    if chosen.uses_vectors:
        limit = max(n, min(SHORTLIST, NUMBERS // vectors(pool[:1]).shape[1]))
    scores = score(model, pool, progress) if model is not None and chosen.scores_pool else None
    rows = chosen.shortlist(scores, len(pool), n, limit, rng)
    # sorted, so that it does not matter whether a labelled text is known by itself or as one of the pool
    known = sorted({*labelled, *subset(texts, np.flatnonzero(is_labelled)[:limit])})[:limit]  # type: ignore[arg-type]
    candidates = make_candidates(subset(pool, rows), known, None if scores is None else scores[rows],  # type: ignore[arg-type]
                                 model, vectors if chosen.uses_vectors else None)
    selected = chosen.select(candidates, n, rng)
    found = [pool[i] for i in rows[selected].tolist()]
    if model is None:
        reasons = explain(candidates, selected, None, (), "multi-class", chosen.reasons)
        return [Suggestion(text, None, None, reason) for text, reason in zip(found, reasons, strict=True)], notices
    p = model.probabilities(found)
    reasons = explain(candidates, selected, p, model.classes.names, model.task, chosen.reasons)
    guesses = labels_of(model, p)
    return [Suggestion(text, guess, round(float(top), 6), reason)
            for text, guess, top, reason in zip(found, guesses, p.max(axis=1), reasons, strict=True)], notices


def labels_of(model: Model, p: np.ndarray) -> list[Any]:
    """The labels of texts with probabilities p (N, K): the most probable one, or those that the decision gives."""
    return list(model.classes.names_of(model.rules.rule()(p) if model.task == "multi-label" else p.argmax(axis=1)))


def known_texts(texts: Sequence[str], hashes: np.ndarray) -> np.ndarray:
    """Whether each text has one of the hashes, (N,)."""
    if not len(hashes):
        return np.zeros(len(texts), dtype=bool)
    return np.concatenate([np.empty(0, dtype=bool), *(np.isin(text_hashes(texts[start : start + CHUNK]), hashes)
                                                      for start in range(0, len(texts), CHUNK))])


def score(model: Predictor, texts: Sequence[str], progress: Progress | None = None) -> Scores:
    """The model's scores of all texts, a chunk at a time."""
    parts = []
    for start in range(0, len(texts), CHUNK):
        tick = (lambda done, _, at=start: progress(at + done, len(texts))) if progress else None
        parts.append(Scores.of(model.probabilities(texts[start : start + CHUNK], tick), model.task))
    return Scores(np.concatenate([part.doubt for part in parts]), np.concatenate([part.guess for part in parts]))


def make_candidates(texts: Sequence[str], labelled: Sequence[str], scores: Scores | None, model: Predictor | None,
                    vectors: Callable[[Sequence[str]], np.ndarray] | None) -> Candidates:
    """Candidates with their vectors, if those are used; labelled texts are counted by the class that is guessed."""
    if vectors is None:
        return Candidates.of(np.zeros((len(texts), 0)), np.zeros((0, 0)), scores)
    x = vectors(texts)
    counts = None
    if model is not None:
        guess = score(model, labelled).guess if labelled else np.empty(0, np.int64)
        counts = np.bincount(guess, minlength=len(model.classes)).astype(np.float64)
    return Candidates.of(x, vectors(labelled) if labelled else np.zeros((0, x.shape[1])), scores, counts)
