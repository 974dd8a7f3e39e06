"""A corpus is drawn into labelled, unlabelled, dev and test parts, the same for the same seed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np

from halflabel.data.labels import Classes
from halflabel.types import BadInput, Corpus, Label


@dataclass(frozen=True)
class Split:
    """The parts of one draw; `truth` holds the hidden labels of `unlabelled`, for measuring only."""

    labelled: Corpus
    unlabelled: Corpus
    truth: list[Label | tuple[Label, ...] | None]
    dev: Corpus
    test: Corpus
    seed: int
    fingerprint: str


def draw(
    corpus: Corpus,
    *,
    per_class: int | None,
    labelled: int | None = None,
    unlabelled: int | None,
    dev: int = 0,
    test: float | int = 0,
    seed: int,
) -> Split:
    """Parts without overlap: test and dev first, then the labelled texts, then the pool from what is left.

    Give `per_class` (texts of each class) or `labelled` (texts in all, in the proportions of the classes, at
    least one of each). `test` is a number of texts, or a share of the labelled rows if it is a float below 1.
    `unlabelled=None` takes all that is left, rows without a label included. Multi-class draws are stratified,
    multi-label draws are random and take `labelled` only. Under one seed, 10 per class hold the 5 per class.
    """
    if (per_class is None) == (labelled is None):
        raise BadInput("give either per_class or labelled: texts of each class, or labelled texts in all")
    if corpus.task == "multi-label" and per_class is not None:
        raise BadInput("per_class means nothing where texts have several labels; give labelled, texts in all")
    rng = np.random.default_rng(seed)
    known = [i for i, label in enumerate(corpus.labels) if label is not None]
    queues = _queues(corpus, [known[i] for i in rng.permutation(len(known))])
    test_rows = _proportional(queues, _count(test, len(known)), "test", corpus.source)
    dev_rows = _proportional(queues, dev, "dev", corpus.source)
    if per_class is not None:
        labelled_rows = _each(queues, per_class, corpus.source)
    else:
        labelled_rows = _proportional(queues, labelled or 0, "labelled", corpus.source, least=1)
    rest = sorted(set(range(len(corpus))) - {*test_rows, *dev_rows, *labelled_rows})
    if unlabelled is not None and not 0 <= unlabelled <= len(rest):
        left = f"{corpus.source} has {len(rest)} texts left for unlabelled={unlabelled}"
        raise BadInput(f"{left}; ask for 0 to {len(rest)}")
    pool_rows = [rest[i] for i in rng.permutation(len(rest))[:unlabelled]]
    parts = [corpus.take(sorted(rows)) for rows in (labelled_rows, pool_rows, dev_rows, test_rows)]
    pool = parts[1]
    return Split(parts[0], pool.without_labels(), pool.labels, parts[2], parts[3], seed, _fingerprint(parts))


def _count(share: float | int, whole: int) -> int:
    if isinstance(share, float) and not 0 <= share < 1:
        raise BadInput(f"test={share} is not a share; give a float from 0 to below 1, or a number of texts")
    return round(share * whole) if isinstance(share, float) else share


def _queues(corpus: Corpus, order: list[int]) -> dict[Label, list[int]]:
    """Rows in the order in which they will be drawn: a queue for each class, one in all for multi-label."""
    classes = Classes.of(corpus.labels)
    if corpus.task == "multi-label":
        return {"all": order}
    queues: dict[Label, list[int]] = {name: [] for name in classes.names}
    for i in order:
        queues[corpus.labels[i]].append(i)  # type: ignore[index]
    return queues


def _each(queues: dict[Label, list[int]], number: int, source: str) -> list[int]:
    if number < 1:
        raise BadInput(f"per_class={number} leaves nothing to learn from; give 1 or more")
    return _take(queues, dict.fromkeys(queues, number), "labelled", source)


def _proportional(
    queues: dict[Label, list[int]], number: int, part: str, source: str, least: int = 0
) -> list[int]:
    """`number` rows in the proportions of the queues, by largest remainders, `least` of each at the least."""
    whole = sum(map(len, queues.values()))
    if number < least * len(queues):
        raise BadInput(f"{part}={number} is fewer than one for each of {len(queues)} classes; give more")
    if not 0 <= number <= whole:
        raise BadInput(f"{source} has {whole} labelled texts left for {part}={number}; ask for 0 to {whole}")
    if not number:
        return []
    floors = {name: divmod(number * len(queue), whole) for name, queue in queues.items()}
    shares = {name: floor for name, (floor, _) in floors.items()}
    by_remainder = sorted(queues, key=lambda name: floors[name][1], reverse=True)
    for name in by_remainder[: number - sum(shares.values())]:
        shares[name] += 1
    shares = {name: max(least, share) for name, share in shares.items()}
    while sum(shares.values()) > number:
        shares[max(shares, key=lambda name: shares[name])] -= 1
    return _take(queues, shares, part, source)


def _take(queues: dict[Label, list[int]], shares: dict[Label, int], part: str, source: str) -> list[int]:
    rows: list[int] = []
    for name, queue in queues.items():
        share = shares[name]
        if share > len(queue):
            left = f"{source} has {len(queue)} texts of {name!r} left for {part}, not {share}"
            raise BadInput(f"{left}; ask for fewer")
        rows += queue[:share]
        del queue[:share]
    return rows


def _fingerprint(parts: list[Corpus]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, part in zip(("labelled", "unlabelled", "dev", "test"), parts, strict=True):
        content = [part.texts, part.labels] if name != "unlabelled" else part.texts
        digest.update(json.dumps([name, content], ensure_ascii=True).encode("ascii"))
    return digest.hexdigest()
