"""Which texts to label next: strategies on probabilities and vectors of unlabelled texts.

A strategy has two steps. `shortlist` sees the doubt and the guessed class of every text and selects candidates, so that
vectors are needed of these alone; `select` selects among the candidates. To add a strategy, add an entry to
`STRATEGIES`.

Shapes: N candidates, M labelled texts, K classes, H encoder width.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halflabel.arrays import Array
from halflabel.errors import SettingError
from halflabel.types import Task

Rows = NDArray[np.integer]

DOUBTFUL = 0.5  # share of each guessed class that `balanced` considers, the most doubtful texts
NEAR_DUPLICATE = 0.95  # cosine of centred vectors
OUTLIERS = 0.05  # share of the candidates that is suggested last, since few texts are like them
NEIGHBOURS, REFERENCES = 10, 2000  # density: the mean cosine to the nearest of a sample of the candidates
STARTS, ITERATIONS, COMPONENTS = 3, 20, 64  # of k-means, on principal components, which takes a sixth of the time
MOST_COVERED = 200  # clusters for labelled texts, at most, since k-means takes time for each


@dataclass(frozen=True, eq=False)
class Scores:
    """What a model says about each text, (N,): its doubt from 0 to 1, and the most probable class."""

    doubt: Array
    guess: Rows

    @classmethod
    def of(cls, p: Array, task: Task) -> Scores:
        return cls(doubt(p, task), p.argmax(axis=1))

    def __getitem__(self, rows: Rows) -> Scores:
        return Scores(self.doubt[rows], self.guess[rows])


@dataclass(frozen=True, eq=False)
class Candidates:
    """Vectors of candidates (N, H) and of labelled texts (M, H), centred and of unit length.

    `scores` are None without a model; `counts` (K,) are the numbers of labelled texts by class.
    """

    vectors: Array
    labelled: Array
    scores: Scores | None
    counts: Array

    @classmethod
    def of(cls, vectors: Array, labelled: Array, scores: Scores | None = None,
           counts: Array | None = None) -> Candidates:
        """From vectors as the encoder returns them: their mean is removed, since all texts share it."""
        mean = vectors.mean(axis=0)
        return cls(unit_length(vectors - mean), unit_length(labelled - mean), scores,
                   np.zeros(0) if counts is None else counts)

    def __len__(self) -> int:
        return len(self.vectors)

    @cached_property
    def density(self) -> Array:
        """The mean cosine to the nearest neighbours, (N,)."""
        references = self.vectors[np.linspace(0, len(self) - 1, min(len(self), REFERENCES)).astype(int)]
        nearest = min(NEIGHBOURS + 1, len(references))  # a reference is its own nearest neighbour
        return np.concatenate([np.partition(part @ references.T, -nearest, axis=1)[:, -nearest:].mean(axis=1)
                               for part in np.array_split(self.vectors, 1 + len(self) // REFERENCES)])

    @cached_property
    def remoteness(self) -> Array:
        """One minus the cosine to the nearest labelled text, (N,)."""
        return 1.0 - (self.vectors @ self.labelled.T).max(axis=1, initial=-1.0)

    def standing(self, kind: str) -> Array | None:
        """How strongly each candidate has a kind of reason, (N,); None where that cannot be said."""
        if kind == "doubt":
            return None if self.scores is None else self.scores.doubt
        if kind == "remoteness":
            return self.remoteness if len(self.labelled) else None
        return self.density if kind == "density" else None

    @property
    def is_outlier(self) -> NDArray[np.bool_]:
        return self.density < np.quantile(self.density, OUTLIERS)


def doubt(p: Array, task: Task) -> Array:
    """How little a model is sure, from 0 to 1, (N,), from p (N, K).

    One minus the margin between the two most probable classes; for several labels per text the mean entropy of having
    each label, in bits.
    """
    if task == "multi-label":
        q = np.clip(p, 1e-9, 1.0 - 1e-9)
        return np.asarray(-(q * np.log2(q) + (1.0 - q) * np.log2(1.0 - q)).mean(axis=1))
    first, second = np.sort(p, axis=1)[:, :-3:-1].T
    return np.asarray(1.0 - (first - second))


def unit_length(x: Array) -> Array:
    """Vectors (N, H) of length 1; zero stays zero."""
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))


# Shortlists: rows of at most `limit` of `total` texts, from which n are to be selected


def random_texts(scores: Scores | None, total: int, n: int, limit: int, rng: np.random.Generator) -> Rows:
    """A random sample."""
    return rng.permutation(total)[:limit]


def most_doubtful(scores: Scores | None, total: int, n: int, limit: int, rng: np.random.Generator) -> Rows:
    """The texts of greatest doubt."""
    assert scores is not None, "only with a model"
    return np.argsort(-scores.doubt, kind="stable")[:limit]


def doubtful_of_each_class(scores: Scores | None, total: int, n: int, limit: int, rng: np.random.Generator) -> Rows:
    """The more doubtful half of each guessed class, sampled so that no class exceeds the others in a large pool."""
    if scores is None:
        return random_texts(scores, total, n, limit, rng)
    share = min(1.0, max(DOUBTFUL, 2 * n / total))  # of a small pool more than half
    classes = [np.flatnonzero(scores.guess == k) for k in np.unique(scores.guess)]
    halves = [rows[np.argsort(-scores.doubt[rows], kind="stable")[: int(np.ceil(share * len(rows)))]]
              for rows in classes]
    room, shares = limit, []
    for i, rows in enumerate(sorted(halves, key=len)):  # what a small class leaves is for the larger ones
        shares.append(rng.permutation(rows)[: room // (len(halves) - i)])
        room -= len(shares[-1])
    return np.sort(np.concatenate(shares))


# Selections: candidates in the order in which they should be labelled


def in_order(candidates: Candidates, n: int, rng: np.random.Generator) -> Rows:
    """The candidates as the shortlist ordered them."""
    return np.arange(min(n, len(candidates)))


def diverse(candidates: Candidates, n: int, rng: np.random.Generator) -> Rows:
    """Representatives of the candidates where no labelled text is near."""
    return representatives(candidates, n, np.ones(len(candidates)), rng)


def balanced(candidates: Candidates, n: int, rng: np.random.Generator) -> Rows:
    """Representatives of doubtful candidates, rather of classes that have few labels or are guessed rarely."""
    scores = candidates.scores
    if scores is None:
        return diverse(candidates, n, rng)
    mass = np.bincount(scores.guess, scores.doubt, minlength=len(candidates.counts))
    wanted = 1.0 / (1.0 + candidates.counts)
    # the square root is half-way between the pool's class frequencies and equal ones
    balance = np.sqrt(wanted / np.maximum(mass, 1e-6))
    return representatives(candidates, n, scores.doubt * balance[scores.guess], rng)


def representatives(candidates: Candidates, n: int, weights: Array, rng: np.random.Generator) -> Rows:
    """The texts nearest to the centres of clusters, those with the fewest labelled texts first, then heavy ones.

    Clusters are found by k-means on candidates and labelled texts, n more than there are labelled texts, so that n
    clusters at least have none. A candidate counts as much as its weight (N,) says. Outliers and near-duplicates come
    last.
    """
    from sklearn.cluster import KMeans

    outlier = candidates.is_outlier
    weights = weights / max(weights.max(), 1e-12) * ~outlier + 1e-6
    labelled = len(candidates.labelled)
    # in double precision, since k-means++ converts each part of a matrix again in single precision
    texts = principal_components(np.concatenate([candidates.vectors, candidates.labelled])).astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # equal vectors make fewer clusters
        k_means = KMeans(min(n + min(labelled, MOST_COVERED), len(texts)), n_init=STARTS, max_iter=ITERATIONS,
                         random_state=int(rng.integers(2**31)))
        k_means.fit(texts, sample_weight=np.append(weights, np.full(labelled, np.median(weights))))
    cluster, of_labelled = np.split(k_means.labels_, [len(candidates)])
    distance = np.linalg.norm(texts[: len(candidates)] - k_means.cluster_centers_[cluster], axis=1)
    size = np.bincount(cluster, weights)[cluster]
    covered = np.bincount(of_labelled, minlength=k_means.n_clusters)[cluster]
    by_cluster = np.lexsort((distance, outlier, cluster))
    starts = np.searchsorted(cluster[by_cluster], cluster[by_cluster])
    place = np.empty(len(candidates), dtype=np.int64)  # of a text in its cluster
    place[by_cluster] = np.arange(len(candidates)) - starts
    return without_near_duplicates(candidates, np.lexsort((-size, covered, place, outlier)), n)


def principal_components(x: Array) -> Array:
    """Centred vectors (N, H) in the directions in which they differ most, of unit length again."""
    _, axes = np.linalg.eigh(x.T @ x)
    return unit_length(x @ axes[:, -COMPONENTS:])


def without_near_duplicates(candidates: Candidates, order: Rows, n: int) -> Rows:
    """The first n in an order, without near-duplicates of labelled texts or each other, unless others are too few."""
    chosen: list[int] = []
    similar = candidates.remoteness < 1.0 - NEAR_DUPLICATE
    for row in order.tolist():
        if len(chosen) == n:
            break
        if not similar[row]:
            chosen.append(row)
            similar |= candidates.vectors @ candidates.vectors[row] > NEAR_DUPLICATE
    rest = order[~np.isin(order, chosen)]
    return np.concatenate([np.array(chosen, dtype=np.int64), rest[: n - len(chosen)]])


# Reasons, in plain words

PHRASES = {"remoteness": "far from labelled texts", "density": "covers a dense region", "random": "random sample"}


def explain(candidates: Candidates, rows: Rows, p: Array | None, names: Sequence[Any], task: Task,
            kinds: Sequence[str]) -> list[str]:
    """Why each of the rows was selected: by which of the kinds of reason it exceeds most other candidates.

    p (len(rows), K) are the probabilities of the selected texts, if there is a model.
    """
    ranks = {kind: rank(values)[rows] for kind in kinds if (values := candidates.standing(kind)) is not None}
    order = [*ranks] or ["random"]
    best = [order[i] for i in np.stack([*ranks.values()] or [np.zeros(len(rows))]).argmax(axis=0)]
    guess = np.zeros(len(rows), dtype=np.int64) if p is None else p.argmax(axis=1)
    rare = candidates.counts < candidates.counts.mean() / 2 if "rarity" in kinds and len(candidates.counts) else None
    return [f"rare class: {names[k]}" if rare is not None and rare[k]
            else in_words(kind, None if p is None else p[i], names, task)
            for i, (kind, k) in enumerate(zip(best, guess.tolist(), strict=True))]


def in_words(kind: str, p: Array | None, names: Sequence[Any], task: Task) -> str:
    """A kind of reason as a phrase; p (K,) are the probabilities of the text."""
    if kind == "doubt":
        assert p is not None, "doubt comes from a model"
        if task == "multi-label":
            return f"uncertain about {names[int(np.abs(p - 0.5).argmin())]}"
        first, second = np.argsort(-p, kind="stable")[:2].tolist()
        return f"uncertain between {names[first]} and {names[second]}"
    return PHRASES[kind]


def rank(values: Array) -> Array:
    """The share of values that each exceeds, (N,)."""
    return np.asarray(np.searchsorted(np.sort(values), values) / max(1, len(values)))


Shortlist = Callable[[Scores | None, int, int, int, np.random.Generator], Rows]
Selection = Callable[[Candidates, int, np.random.Generator], Rows]


@dataclass(frozen=True)
class Strategy:
    """How texts are shortlisted and selected, and for which kinds of reason."""

    shortlist: Shortlist
    select: Selection
    reasons: tuple[str, ...] = ()
    scores_pool: bool = False  # whether the shortlist uses the scores of every text

    @property
    def uses_vectors(self) -> bool:
        return self.select is not in_order


STRATEGIES = {
    "balanced": Strategy(doubtful_of_each_class, balanced, ("rarity", "doubt", "remoteness", "density"), True),
    "uncertainty": Strategy(most_doubtful, in_order, ("doubt",), True),
    "diverse": Strategy(random_texts, diverse, ("remoteness", "density")),
    "random": Strategy(random_texts, in_order),
}


def find_strategy(name: str) -> Strategy:
    """The strategy of that name."""
    if name not in STRATEGIES:
        raise SettingError(f"there is no strategy '{name}'; choose one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name]
