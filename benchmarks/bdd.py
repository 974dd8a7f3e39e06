"""Why balanced angles win or do not win: AM, BDD and variants of its statistics, the collapse guard off.

    python benchmarks/bdd.py --data FOLDER [--sets ag_news arxiv_topics10 sst5 synthetic] [--seeds 0 1 2 3 4]

Arms: `am` (a_k = 1), `bdd` (as published), `oracle` (statistics by the true labels of the pool, for this study only),
`placebo` (the slopes a_k of another class), `uniform` (the mean of the slopes for all classes: a change of scale),
`weights` (angles with the weight vectors W_k instead of the prototypes) and `shrunk` (variances shrunk towards their
mean). The synthetic sets are Gaussian classes whose standard deviations differ by the factor in the name, so that the
premise of the paper holds by construction.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from cached_scores import scores, vectors
from halflabel import TextClassifier
from halflabel import equations as eq
from halflabel.data.augmentation import WordEdits
from halflabel.data.cleaning import clean, drop_labelled
from halflabel.data.corpus import Corpus
from halflabel.encoders.loading import LOADERS
from halflabel.encoders.text_encoder import TextEncoder
from halflabel.methods.bdd import BOUNDS, GENTLE, BalancedAngles, am_f, am_s, bdd_f, bdd_s
from halflabel.methods.registry import method
from halflabel.nn.network import Head
from halflabel.notices import EpochReport
from halflabel.persistence.model import TrainedModel
from halflabel.training.objective import SelfTraining
from halflabel.types import Shape
from protocol import SETS, Results, Sample, load, sample_per_class, setting

ARMS = ("am", "bdd", "oracle", "placebo", "uniform", "weights", "shrunk")
FORMS = {"s": (bdd_s, am_s, GENTLE), "f": (bdd_f, am_f, {})}
MEMORY = 0.1  # the default of bdd-s and bdd-f
SHRINK = 20.0  # imaginary texts with the mean variance
TRUTH: dict[str, Tensor] = {}  # true labels of the labelled texts and the pool, for the oracle

RATIOS = (1, 2, 4, 8)  # of the largest to the smallest standard deviation of a synthetic class
DIMENSIONS, CLASSES, SPREAD = 32, 4, 0.42


class Oracle(BalancedAngles):
    """Eqs. 6 to 8 by the true labels of all training texts."""

    def update(self, f: Tensor, y: Tensor) -> None:
        super().update(f, TRUTH["y"].to(y))


class Placebo(BalancedAngles):
    """Each class is stretched by the slope of the next one."""

    def slopes(self) -> Tensor:
        return super().slopes().roll(1)


class Uniform(BalancedAngles):
    """All classes are stretched alike, by the mean of their slopes."""

    def slopes(self) -> Tensor:
        slopes = super().slopes()
        return slopes.mean().expand_as(slopes)


class WeightAngles(BalancedAngles):
    """Means and variances of the angles with W_k, which Eq. 2 is applied to, instead of those with the prototypes."""

    def __init__(self, shape: Shape, head: Head) -> None:
        super().__init__(shape, MEMORY, BOUNDS)
        self.head = [head]  # in a list, since the network owns the head already

    @torch.no_grad()
    def update(self, f: Tensor, y: Tensor) -> None:
        super().update(f, y)
        weight = self.head[0].weight
        assert isinstance(weight, Tensor)
        mean, variance = eq.angle_moments(eq.angles(eq.cosines(f, weight)), y)
        self.mean.copy_(mean)
        self.variance.copy_(variance)


def build(form: str, arm: str, shape: Shape) -> SelfTraining:
    """One arm: everything but the angles is that of bdd-s or bdd-f."""
    bdd, am, _ = FORMS[form]
    full = bdd(shape)
    angles = {"oracle": lambda: Oracle(shape, MEMORY, BOUNDS), "placebo": lambda: Placebo(shape, MEMORY, BOUNDS),
              "uniform": lambda: Uniform(shape, MEMORY, BOUNDS),
              "weights": lambda: WeightAngles(shape, full.head),
              "shrunk": lambda: BalancedAngles(shape, MEMORY, BOUNDS, shrink=SHRINK)}
    if arm in angles:
        return replace(full, angles=angles[arm]())
    return am(shape) if arm == "am" else full


def register() -> None:
    """Registers each arm of each form as a method."""
    for form, (_, _, plans) in FORMS.items():
        for arm in ARMS:
            method(f"study-{arm}-{form}", task="multi-class", paper="-", plans=plans)(partial(build, form, arm))


class Table(TextEncoder):
    """Vectors by their number, which is the text."""

    padding, special, max_tokens = 0, frozenset({0}), 4

    def __init__(self, vectors: np.ndarray, name: str) -> None:
        super().__init__()
        self.name = name
        self.embedding = nn.Embedding.from_pretrained(torch.from_numpy(vectors).float())

    @property
    def width(self) -> int:
        return int(self.embedding.embedding_dim)

    def tokens(self, texts: Any) -> list[np.ndarray]:
        return [np.array([int(text)], np.int32) for text in texts]

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.embedding(ids[:, 0])

    def fingerprint(self) -> str:
        return self.name

    tokenizer_fingerprint = fingerprint


class Texts(NamedTuple):
    """Training and test texts, a strong view of each training text, and the encoder's name."""

    train: Corpus
    test: Corpus
    views: dict[str, str]
    encoder: str | None


def synthetic(ratio: int, n: int = 6000, n_test: int = 4000) -> Texts:
    """Gaussian classes about orthogonal unit vectors; their deviations form a geometric series."""
    rng = np.random.default_rng(ratio)
    centres = np.linalg.qr(rng.standard_normal((DIMENSIONS, CLASSES)))[0].T
    series = float(ratio) ** np.linspace(-0.5, 0.5, CLASSES)
    deviations = SPREAD * series / np.sqrt(np.mean(series**2))
    y = rng.integers(0, CLASSES, n + n_test)
    x = centres[y] + deviations[y, None] * rng.standard_normal((len(y), DIMENSIONS))
    views = x[:n] + 0.15 * rng.standard_normal((n, DIMENSIONS))
    vectors = np.concatenate([np.zeros((1, DIMENSIONS)), x, views])
    vectors[1:] /= np.linalg.norm(vectors[1:], axis=1, keepdims=True)
    name = f"synthetic-{ratio}"
    LOADERS[name] = lambda max_tokens: Table(vectors, name)
    texts = [str(i + 1) for i in range(len(y))]
    names = [f"class {k}" for k in y]
    return Texts(Corpus(texts[:n], names[:n]), Corpus(texts[n:], names[n:]),
                 {text: str(i + 1 + len(y)) for i, text in enumerate(texts[:n])}, name)


def real(data: Path, name: str) -> Texts:
    train, test = (load(data, name, part, n) for part, n in zip(("train", "test"), SETS[name], strict=True))
    views = dict(zip(train.texts, WordEdits.fit(train.texts, seed=0).views(train.texts, 0), strict=True))
    return Texts(train, test, views, None)


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    register()
    results = Results("bdd")
    names = [part for name in options.sets
             for part in ([f"synthetic-{ratio}" for ratio in RATIOS] if name == "synthetic" else [name])]
    for name in names:
        texts = synthetic(int(name.split("-")[1])) if name.startswith("synthetic") else real(options.data, name)
        for seed in options.seeds:
            for form in options.forms:
                for arm in options.arms:
                    key = {"set": name, "plan": options.plan, "per_class": options.per_class, "seed": seed,
                           "form": form, "arm": arm, "unlabelled": options.unlabelled, "settings": dict(options.set)}
                    if not results.has(**key):
                        line = run(texts, key)
                        results.add(**key, **line)
                        print(name, seed, form, arm, round(line["accuracy"], 4), round(line["seconds"], 1), flush=True)


def run(texts: Texts, key: dict[str, Any]) -> dict[str, Any]:
    """One run, evaluated on the test texts."""
    split = without_duplicates(sample_per_class(texts.train, key["per_class"], key["unlabelled"], key["seed"]))
    TRUTH["y"] = true_labels(split)
    epochs: list[dict[str, Any]] = []
    clf = TextClassifier(f"study-{key['arm']}-{key['form']}", texts.encoder, key["plan"], random_state=key["seed"],
                         settings={"guard": "off", "survey": 50_000} | key["settings"])
    began = time.perf_counter()
    clf.fit(split.labelled.texts, split.labelled.labels, unlabelled=split.pool.texts, truth=split.truth,
            views=[(texts.views[text],) for text in split.pool.texts],
            report=lambda event: epochs.append(event.figures) if isinstance(event, EpochReport) else None)
    seconds = time.perf_counter() - began
    of_test = clf.model_.scores(texts.test.texts) if texts.encoder else scores(clf.model_, texts.test.texts)
    predicted, truth = clf.classes_[of_test.argmax(axis=1)], np.array(texts.test.labels)
    recall = [float(np.mean(predicted[truth == name] == name)) for name in clf.classes_]
    return {"accuracy": float(np.mean(predicted == truth)), "seconds": seconds, "n_test": len(truth), "recall": recall,
            "pseudo_accuracy": [e["pseudo_accuracy"] for e in epochs if "pseudo_accuracy" in e],
            "dlav": epochs[-1]["dlav"], "a": epochs[-1].get("a"), "true_a": true_slopes(clf, split)}


def without_duplicates(split: Sample) -> Sample:
    """The texts that training keeps, so that the rows of the oracle's labels are those of its statistics."""
    labelled = clean(split.labelled, role="labelled")[0]
    pool = drop_labelled(clean(split.pool, role="unlabelled")[0], labelled)
    first = dict(reversed(list(zip(split.pool.texts, split.truth, strict=True))))
    return replace(split, labelled=labelled, pool=pool, truth=[first[text] for text in pool.texts])


def true_labels(split: Sample) -> Tensor:
    """One-hot labels of the labelled texts and the pool, (N_l + N_u, K)."""
    names = sorted(set(split.labelled.labels), key=str)
    columns = [names.index(label) for label in [*split.labelled.labels, *split.truth]]
    return torch.eye(len(names))[columns]


def true_slopes(clf: TextClassifier, split: Sample) -> list[float]:
    """The slopes a_k that the true labels of the pool give in the final feature space."""
    assert isinstance(clf.model_, TrainedModel)
    h = vectors(clf.model_, split.pool.texts)
    with torch.inference_mode():
        f = clf.model_.network.eval().classify(torch.from_numpy(np.asarray(h))).f
    y = true_labels(split)[len(split.labelled.labels):]
    _, variance = eq.angle_moments(eq.angles(eq.cosines(f, eq.prototypes(f, y))), y)
    return [float(a) for a in eq.slopes(variance)]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", default=[*SETS, "synthetic"])
    parser.add_argument("--plan", default="frozen")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=FORMS)
    parser.add_argument("--per-class", type=int, default=25)
    parser.add_argument("--unlabelled", type=int, default=4000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=NUMBER", type=setting)
    return parser.parse_args()


if __name__ == "__main__":
    main()
