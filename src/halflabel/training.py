"""From corpora to a trained model: puts encoder, views, method and plan together and runs the loop."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from halflabel.data.augment import WordEdits
from halflabel.data.labels import Classes
from halflabel.fitted import Fitted, write_description
from halflabel.methods import find
from halflabel.metrics import multi_class
from halflabel.model.encoder import Encoder, load_encoder
from halflabel.model.head import Unit
from halflabel.model.network import Frozen
from halflabel.model.source import Source, TokenSource, VectorSource
from halflabel.model.states import StateSource
from halflabel.model.vectors import VectorStore, cache_folder
from halflabel.parts.pseudo import Stored
from halflabel.parts.start import closed_form
from halflabel.parts.words import word_counts
from halflabel.train.checkpoint import Keeper, Memory, write_tensors, write_text
from halflabel.train.loop import Outcome, Report, train
from halflabel.train.objective import Objective, Problem
from halflabel.train.pace import fitted_to_minutes
from halflabel.types import BadInput, Corpus, Plan, Shape


@dataclass(frozen=True)
class Settings:
    """All choices of a run that are not texts."""

    method: str
    plan: Plan
    encoder: str
    seed: int
    hyper: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"method": self.method, "plan": self.plan.to_json(), "encoder": self.encoder, "seed": self.seed,
                "hyper": self.hyper}


@dataclass(frozen=True, eq=False)
class Trained:
    """A model and how its run went."""

    model: Fitted
    outcome: Outcome


def learn(labelled: Corpus, pool: Corpus, settings: Settings, *, dev: Corpus | None = None,
          truth: list[Any] | None = None, folder: Path | None = None, resume: bool = False,
          report: Report = lambda line: None) -> Trained:
    """Trains a method on labelled texts and a pool of unlabelled ones."""
    began = time.monotonic()
    classes, texts = Classes.of(labelled.labels), fingerprint(labelled, pool)
    earlier = None if folder is None else open_run(folder, settings, texts, resume)
    encoder = load_encoder(settings.encoder, settings.plan.max_tokens)
    prepare(encoder, settings.plan)
    shape = Shape(len(classes.names), encoder.width, len(labelled), len(pool))
    torch.manual_seed(settings.seed)
    recipe = find(settings.method)(shape, **settings.hyper)
    objective = Objective(Frozen() if settings.plan.frozen else encoder, recipe)
    problem = make_problem(encoder, objective, labelled, pool, classes, settings, report, truth)
    if earlier:
        plan = Plan.from_json(earlier["plan"])
    else:
        plan = fitted_to_minutes(settings.plan, objective, problem, settings.seed, report)
    facts: dict[str, Any] = {
        "encoder": settings.encoder, "plan": plan.to_json(), "seed": settings.seed, "versions": versions(),
        "texts": {"labelled": len(labelled), "unlabelled": len(pool), "fingerprint": texts}}
    model = Fitted(encoder, objective.network, classes, settings.method, settings.hyper, shape, facts)
    judge = make_judge(model, dev, classes) if dev is not None else None
    if folder is not None and not earlier:
        prepare_folder(folder, model, plan, settings)
    keeper = Memory() if folder is None else Keeper(folder)
    outcome = train(objective, problem, plan, seed=settings.seed, keeper=keeper, report=report, judge=judge)
    facts["run"] = {"why": outcome.why, "notices": list(outcome.notices), "dev": outcome.score,
                    "seconds": round(time.monotonic() - began, 1)}
    if folder is not None:
        write_text(folder / "config.json", json.dumps(model.description(), indent=1, ensure_ascii=False))
    keeper.finish()
    return Trained(model, outcome)


def make_problem(encoder: Encoder, objective: Objective, labelled: Corpus, pool: Corpus, classes: Classes,
                 settings: Settings, report: Report = lambda line: None, truth: list[Any] | None = None) -> Problem:
    """Token ids or frozen vectors of all texts, labelled first, in as many views as the method wants."""
    plan, method = settings.plan, objective.method
    y = torch.from_numpy(classes.matrix(labelled.labels))
    views = [labelled.texts + pool.texts]
    if method.strong_views and len(pool):
        views += [labelled.texts + view for view in strong_views(pool, classes.names, settings.seed)]
    store = VectorStore(cache_folder() / "vectors", encoder)

    def vectors(texts: list[str]) -> np.ndarray:
        return store(texts, lambda done, total: report({"encoded": done, "texts": total}))

    if method.closed_form:
        begin(objective, vectors(views[0]), views[0], y, settings.seed)
    source: Source
    if plan.frozen:
        source = VectorSource([torch.from_numpy(vectors(view)) for view in views])
    elif plan.frozen_layers:
        source = StateSource(encoder, views, folder=cache_folder() / "states", drop=plan.token_drop)
    else:
        source = TokenSource(encoder, views, drop=plan.token_drop)
    columns = None if truth is None else torch.from_numpy(classes.matrix(truth).argmax(axis=1))
    return Problem(source, y, len(pool), len(views), columns)


def begin(objective: Objective, vectors: np.ndarray, texts: list[str], y: torch.Tensor, seed: int) -> None:
    """Puts the closed-form rule into the head and its soft labels into the table."""
    x = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    x = x.astype(np.float64)
    words = word_counts(texts)
    start = closed_form(x[: len(y)], y.argmax(dim=1).numpy(), x[len(y) :], words, y.shape[1], seed=seed)
    assert isinstance(objective.network.head, Unit) and isinstance(objective.pseudo, Stored)
    objective.network.head.set(torch.from_numpy(start.rule.weight), torch.from_numpy(start.rule.bias))
    objective.pseudo.begin(torch.from_numpy(start.soft), start.alpha, words)


def prepare(encoder: Encoder, plan: Plan) -> None:
    """Switches off what the plan does without: dropout, gradients of word embeddings and lowest layers."""
    for module in encoder.modules():
        if isinstance(module, nn.Dropout) and not plan.dropout:
            module.p = 0.0
        if isinstance(module, nn.Embedding) and not plan.embeddings:
            module.requires_grad_(False)
    if plan.frozen_layers and not plan.frozen:
        if plan.frozen_layers >= len(encoder.layers):
            raise BadInput(f"frozen_layers={plan.frozen_layers} leaves nothing to learn: the encoder has "
                           f"{len(encoder.layers)} layers; give fewer, or use the plan frozen.")
        encoder.frozen_layers = plan.frozen_layers
        encoder.body.embeddings.requires_grad_(False)
        encoder.layers[: plan.frozen_layers].requires_grad_(False)


def strong_views(pool: Corpus, names: Sequence[object], seed: int) -> list[list[str]]:
    """The views that came with the pool, else one made by word edits."""
    if pool.views:
        return [list(column) for column in zip(*pool.views, strict=True)]
    return [WordEdits.fit(pool.texts, seed=seed, keep=[str(name) for name in names]).views(pool.texts, seed)]


def make_judge(model: Fitted, dev: Corpus, classes: Classes) -> Callable[[], float]:
    """Scores the model, as it stands, on the dev texts by micro F1."""
    truth = classes.matrix(dev.labels, source=dev.source).argmax(axis=1)

    def judge() -> float:
        return float(multi_class(truth, model.scores(dev.texts).argmax(axis=1), classes.names)["micro_f1"])
    return judge


def open_run(folder: Path, settings: Settings, texts: str, resume: bool) -> dict[str, Any] | None:
    """What an earlier run in this folder was; None when a new one begins."""
    file = folder / "run.json"
    if not resume:
        if folder.exists() and any(folder.iterdir()):
            raise BadInput(f"{folder} is not empty; choose another --out, or go on with --resume.")
        return None
    if not file.is_file():
        raise BadInput(f"{folder} holds no run to go on with (there is no run.json in it); leave out --resume.")
    run: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if run["settings"] != json.loads(json.dumps(settings.to_json())) or run["texts"] != texts:
        raise BadInput(f"{folder} holds a run with other texts or settings; give the same ones, or choose another "
                       "--out.")
    return run


def prepare_folder(folder: Path, model: Fitted, plan: Plan, settings: Settings) -> None:
    """Writes what does not change during a run; run.json last, so that its presence means the rest is there."""
    folder.mkdir(parents=True, exist_ok=True)
    write_description(folder, model.encoder, model.description())
    if plan.frozen:
        write_tensors(folder / "encoder.safetensors", dict(model.encoder.state_dict()))
    run = {"settings": settings.to_json(), "plan": plan.to_json(), "texts": model.facts["texts"]["fingerprint"]}
    write_text(folder / "run.json", json.dumps(run, indent=1))


def fingerprint(labelled: Corpus, pool: Corpus) -> str:
    """A hash of all texts, labels and views, in order."""
    digest = hashlib.blake2b(digest_size=16)
    for corpus in (labelled, pool):
        digest.update(f"{len(corpus)}\n".encode())
        for row in zip(corpus.labels, corpus.texts, *zip(*corpus.views, strict=True), strict=True):
            digest.update(f"{row!r}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """What the run ran on."""
    import transformers

    return {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__,
            "transformers": transformers.__version__, "machine": platform.machine()}
