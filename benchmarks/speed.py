"""Training speed: halflabel's loop against PyTorch loops over the same model, batch sizes and texts.

    python benchmarks/speed.py --data FOLDER [--steps 60] [--repeats 5]

All loops train on the same soft labels with the same optimizer and learning rates, alternating in one process. The
plain loop is unoptimised: transformers' model as it loads, shuffled batches that are padded to their longest text,
fp32, all weights trained. The tuned loop is the same with autocast to bf16 and batches of similar length. halflabel's
follows the laptop plan: batches of similar length, bf16 matrix products, a share
of the tokens dropped, frozen word embeddings, and averaged weights.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from halflabel.classifier import TextClassifier
from halflabel.data.corpus import Corpus
from halflabel.data.labels import Classes
from halflabel.encoders.encoder import Encoder, pool
from halflabel.encoders.inference import encode
from halflabel.encoders.inputs import TokenInputs, padded
from halflabel.encoders.loading import load_transformer
from halflabel.fitting import freeze, make_problem
from halflabel.methods.lift import LabelTable
from halflabel.methods.registry import find
from halflabel.nn.network import Network
from halflabel.settings import Settings
from halflabel.training.loop import Trainer
from halflabel.training.objective import Objective, Problem
from halflabel.types import Shape
from protocol import Results, Sample, load, sample_per_class

LABELLED, POOL = 8, 32  # texts in a step, as in the laptop plan of `lift`


def main() -> None:
    options = parse()
    if options.threads:
        torch.set_num_threads(options.threads)
    train, test = load(options.data, "ag_news", "train"), load(options.data, "ag_news", "test", options.test)
    split = sample_per_class(train, 10, options.steps * POOL, seed=0)
    results = Results("speed")
    for repeat in range(options.repeats):
        for name, loop in LOOPS.items():
            key = {"loop": name, "repeat": repeat, "steps": options.steps}
            if not results.has(**key):
                rate, network = loop(split, options.steps, repeat)
                accuracy = measure(network, test, split)
                results.add(**key, texts_per_second=rate, accuracy=accuracy)
                print(f"{name}: {rate:.1f} texts/s, accuracy {accuracy:.4f}", flush=True)
    rates = {name: statistics.median(line["texts_per_second"] for line in results if line["loop"] == name)
             for name in LOOPS}
    for name, rate in rates.items():
        print(f"{name}: {rate:.0f} texts/s, {rate / rates['plain']:.2f} times as many as the plain loop")


def begin(split: Sample, steps: int, seed: int) -> tuple[Objective, Encoder, Problem, Settings]:
    """The default method after its start: objective with soft labels, encoder, problem and settings."""
    wanted = TextClassifier("lift", random_state=seed, settings={"epochs": 1, "epoch_steps": steps})
    settings = wanted.chosen_settings("multi-class")
    encoder = load_transformer("minilm", settings.plan.max_tokens)
    classes = Classes.of(split.labelled.labels)
    shape = Shape(len(classes), encoder.width, len(split.labelled), len(split.pool))
    torch.manual_seed(seed)
    objective = Objective(encoder, find("lift")(shape))
    problem = make_problem(encoder, objective, split.labelled, split.pool, classes, settings)
    return objective, encoder, problem, settings


def ours(split: Sample, steps: int, seed: int) -> tuple[float, Network]:
    """halflabel's own loop."""
    objective, encoder, problem, settings = begin(split, steps, seed)
    freeze(encoder, settings.plan)
    trainer = Trainer(objective, problem, settings.plan, seed)
    began = time.perf_counter()
    while trainer.step < steps:
        trainer.train_step()
    seconds = time.perf_counter() - began
    objective.network.load_state_dict(trainer.average.module.state_dict())
    return steps * (LABELLED + POOL) / seconds, objective.network


def plain(split: Sample, steps: int, seed: int, *, tuned: bool = False) -> tuple[float, Network]:
    """A tutorial loop from the same start; `tuned` with autocast and batches of texts of similar length."""
    objective, encoder, problem, settings = begin(split, steps, seed)
    pseudo_labels, inputs = objective.pseudo_labels, problem.inputs
    assert isinstance(pseudo_labels, LabelTable) and isinstance(inputs, TokenInputs)
    network, soft, y, ids = objective.network, pseudo_labels.table, problem.y, inputs.tokens[0]
    body: Any = encoder.body
    optimizer = torch.optim.AdamW([
        {"params": network.encoder.parameters(), "lr": settings.plan.encoder_rate},
        {"params": network.head.parameters(), "lr": settings.plan.head_rate}])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 - t / steps)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(split.pool))
    if tuned:
        by_length = np.array(sorted(range(len(split.pool)), key=lambda i: len(ids[len(y) + i])))
        order = rng.permutation(by_length.reshape(-1, POOL)).ravel()
    body.set_attn_implementation("sdpa")  # the default of transformers
    network.train()
    began = time.perf_counter()
    for step in range(steps):
        labelled = rng.choice(len(y), LABELLED, replace=False)
        unlabelled = order[POOL * step : POOL * (step + 1)]
        rows = np.concatenate([labelled, len(y) + unlabelled])
        tokens, mask = padded([ids[row] for row in rows], encoder)
        with torch.autocast("cpu", torch.bfloat16, enabled=tuned):
            h = pool(body(tokens, mask).last_hidden_state, mask, encoder.pooling).float()
        scores = network.head(network.head.features(h))
        targets = torch.cat([y[labelled], soft[unlabelled]])
        losses = -(targets * functional.log_softmax(scores, dim=1)).sum(dim=1)
        loss = losses[:LABELLED].mean() + losses[LABELLED:].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return steps * (LABELLED + POOL) / (time.perf_counter() - began), network


LOOPS: dict[str, Callable[[Sample, int, int], tuple[float, Network]]] = {
    "halflabel": ours, "plain": plain, "tuned": partial(plain, tuned=True)}


def measure(network: Network, test: Corpus, split: Sample) -> float:
    """Accuracy on the test texts."""
    network.eval()
    assert isinstance(network.encoder, Encoder)
    h = torch.from_numpy(encode(network.encoder, test.texts))
    names = Classes.of(split.labelled.labels).names
    with torch.inference_mode():
        predicted = network.classify(h).scores.argmax(dim=1).tolist()
    return float(np.mean([names[k] == label for k, label in zip(predicted, test.labels, strict=True)]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--test", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
