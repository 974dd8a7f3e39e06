"""Many classes, fine-tuned: does contrast against label anchors within a batch improve `lift`?

    python benchmarks/contrast.py --data FOLDER [--name clinc150] [--per-class 5 10] [--seeds 0 1] [--weights 0 0.5]

A label anchor is the mean vector of a class before training, by the labelled texts and the soft labels of the pool, and
its class name too, where names are used. The loss of a step gets one more term, `weight` times the cross-entropy of
a text's cosines with the anchors of the classes in its batch, over a temperature. Accuracy is measured on training
texts outside the sample, of the network alone and with the votes of words and neighbours.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import cached_scores
from accuracy import POOLS, names_of
from halflabel import TextClassifier
from halflabel.data.corpus import Corpus
from halflabel.methods import lift
from halflabel.methods.registry import METHODS
from halflabel.nn.losses import cross_entropy
from halflabel.persistence.model import TrainedModel
from halflabel.training.objective import (
    CustomStep,
    Objective,
    Problem,
    SelfTraining,
    StartInputs,
    StartResult,
    StepBatch,
    StepResult,
    masked_loss,
)
from halflabel.types import Shape
from protocol import Results, load, sample_per_class

TEMPERATURE = 0.1  # of the cosines with anchors
OUTSIDE = 3000  # training texts outside the sample


class AnchorContrast(CustomStep):
    """A step of self-training with one more term: cross-entropy over the anchors (K, H) of the classes in the batch."""

    def __init__(self, shape: Shape, weight: float) -> None:
        super().__init__()
        self.weight = weight
        self.register_buffer("anchors", torch.zeros(shape.labels, shape.width))
        self.register_buffer("centre", torch.zeros(shape.width))

    anchors: Tensor
    centre: Tensor

    def set_anchors(self, x: Tensor, y: Tensor, names: Tensor | None) -> None:
        """Means of vectors (N, H) with soft labels y (N, K), about their centre, and the direction of the names."""
        self.centre.copy_(x.mean(dim=0))
        means = functional.normalize((y.T @ (x - self.centre)) / y.sum(dim=0).clamp_min(1e-6)[:, None], dim=1)
        if names is not None:
            means = means + functional.normalize(names - names.mean(dim=0), dim=1)
        self.anchors.copy_(functional.normalize(means, dim=1))

    def forward(self, objective: Objective, problem: Problem, batch: StepBatch, weight: float) -> StepResult:
        pool = problem.labelled + batch.unlabelled
        known, target = problem.target(batch.labelled), objective.targets(problem, pool)
        output = objective.outputs(problem, np.concatenate([batch.labelled, pool]), rng=batch.rng)
        n = len(known.y)
        labelled = masked_loss(cross_entropy, output.scores[:n], known).mean()
        unlabelled = masked_loss(cross_entropy, output.scores[n:], target).mean()
        y = torch.cat([known.y, target.y])
        here = y.amax(dim=0) > 0.5
        cosines = functional.normalize(output.f - self.centre, dim=1) @ self.anchors[here].T
        contrast = cross_entropy(cosines / TEMPERATURE, y[:, here])
        loss = labelled + weight * unlabelled + self.weight * (
            contrast[:n].mean() + weight * (target.weight * contrast[n:]).mean())
        return StepResult(loss, float(labelled.detach()), float(unlabelled.detach()), target)


def with_contrast(weight: float) -> Any:
    """The build function of `lift` with that weight of contrast."""
    def build(shape: Shape, *, lambda1: float = 1.0, power: float = 4.0, wrong_labels: str = "keep") -> SelfTraining:
        parts, step = lift.lift(shape, lambda1=lambda1, power=power, wrong_labels=wrong_labels), AnchorContrast(
            shape, weight)

        def start(inputs: StartInputs) -> StartResult:
            assert parts.start is not None and parts.soft_labels is not None
            result = parts.start(inputs)
            names = None
            if inputs.names is not None and result.facts.get("uses_names"):
                names = torch.from_numpy(inputs.names()).float()
            y = torch.cat([inputs.y, parts.soft_labels()]).float()
            step.set_anchors(torch.from_numpy(inputs.unit_vectors()).float(), y, names)
            return result

        return replace(parts, start=start, custom_step=step)
    return build


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    results, names = Results("contrast"), names_of(options.data, options.name) if options.names else None
    train = load(options.data, options.name, "train")
    for per_class in options.per_class:
        for seed in options.seeds:
            split = sample_per_class(train, per_class, POOLS[options.name], seed)
            tested = split.rest.take(range(min(OUTSIDE, len(split.rest))))
            for weight in options.weights:
                key = {"set": options.name, "per_class": per_class, "seed": seed, "weight": weight,
                       "names": bool(names), "temperature": TEMPERATURE}
                if results.has(**key):
                    continue
                if weight:
                    METHODS["lift"] = replace(METHODS["lift"], build=with_contrast(weight))
                clf = TextClassifier("lift", plan="laptop", names=names, minutes=1000, random_state=seed)
                began = time.perf_counter()
                clf.fit(split.labelled.texts, split.labelled.labels, unlabelled=split.pool.texts)
                METHODS["lift"] = replace(METHODS["lift"], build=lift.lift)
                assert isinstance(clf.model_, TrainedModel)
                line = {"network": accuracy(replace(clf.model_, words=None, neighbours=None), tested),
                        "accuracy": accuracy(clf.model_, tested), "n": len(tested)}
                results.add(**key, **line, seconds=time.perf_counter() - began)
                print(key, line, flush=True)


def accuracy(model: TrainedModel, texts: Corpus) -> float:
    """Share of texts that get their own label."""
    truth = np.array(texts.labels).astype(str)
    columns = cached_scores.scores(model, texts.texts).argmax(axis=1)
    given = np.array([str(name) for name in model.classes.names])[columns]
    return float((given == truth).mean())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", default="clinc150", choices=list(POOLS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.5])
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
