"""From corpora to a trained model: puts encoder, views, method and plan together and runs the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from halflabel.data.augment import WordEdits
from halflabel.data.batches import shuffled
from halflabel.data.labels import Classes
from halflabel.decision import Decision
from halflabel.disk import cache_folder
from halflabel.fitted import Fitted
from halflabel.methods import Method, find
from halflabel.metrics import multi_class
from halflabel.model.bag import Bag
from halflabel.model.encoder import Encoder, load_encoder
from halflabel.model.network import Frozen
from halflabel.model.source import Source, TokenSource, VectorSource
from halflabel.model.states import StateSource
from halflabel.model.vectors import VectorStore
from halflabel.parts.prior import prior, sentences, unlearnable
from halflabel.ranking import multi_label
from halflabel.record import Settings, close_folder, fingerprint, open_run, prepare_folder, versions
from halflabel.sequences import columns_of, joined
from halflabel.train.checkpoint import Keeper, Memory
from halflabel.train.loop import train
from halflabel.train.objective import Began, Given, Objective, Problem
from halflabel.train.pace import fitted_to_minutes
from halflabel.train.run import Outcome, Report
from halflabel.train.survey import outputs
from halflabel.types import BadInput, Corpus, Plan, Shape

BOUND = 50_000  # pool texts that a bounded method learns from, at most


@dataclass(frozen=True, eq=False)
class Trained:
    """A model and how its run went."""

    model: Fitted
    outcome: Outcome
    rows: list[int] | None = None  # of the pool that took part; None if all did


def learn(labelled: Corpus, pool: Corpus, settings: Settings, *, dev: Corpus | None = None,
          truth: list[Any] | None = None, columns: Classes | None = None, folder: Path | None = None,
          resume: bool = False, report: Report = lambda line: None) -> Trained:
    """Trains a method on labelled texts and a pool of unlabelled ones; `columns` fixes labels that may not occur."""
    began = time.monotonic()
    classes, texts = columns or Classes.of(labelled.labels), fingerprint(labelled, pool, columns)
    method, given = find(settings.method), len(pool)
    rows = taking_part(len(pool), method, settings.seed)
    if rows is not None:
        pool, truth = in_memory(pool, rows), truth and [truth[i] for i in rows]
    earlier = None if folder is None else open_run(folder, settings, texts, resume)
    if method.labelled_pool and not given:
        pool = labelled.without_labels()
    encoder = make_encoder(method, settings, joined(labelled.texts, pool.texts))
    shape = Shape(len(classes.names), encoder.width, len(labelled), len(pool))
    torch.manual_seed(settings.seed)
    recipe = method(shape, **settings.hyper)
    objective = Objective(Frozen() if settings.plan.frozen else encoder, recipe)
    problem = make_problem(encoder, objective, labelled, pool, classes, settings, report, truth)
    if earlier:
        plan = Plan.from_json(earlier["plan"])
    else:
        plan = fitted_to_minutes(settings.plan, objective, problem, settings.seed, report)
    hard = unlearnable(problem.y, classes.names) if problem.task == "multi-label" else []
    facts: dict[str, Any] = {
        "encoder": settings.encoder, "plan": plan.to_json(), "seed": settings.seed, "versions": versions(),
        "texts": {"labelled": len(labelled), "unlabelled": given, "fingerprint": texts},
        "matrix": columns is not None, "hard_labels": hard}
    model = Fitted(encoder, objective.network, classes, settings.method, settings.hyper, shape, facts)
    judge = make_judge(model, dev, objective, problem) if dev is not None else None
    if folder is not None and not earlier:
        prepare_folder(folder, model, plan, settings)
    keeper = Memory() if folder is None else Keeper(folder)
    for sentence in sentences(hard):
        report({"notice": sentence})
    outcome = train(objective, problem, plan, seed=settings.seed, keeper=keeper, report=report, judge=judge)
    if problem.task == "multi-label":
        model = replace(model, decision=make_decision(model, dev, objective, problem, plan, settings.seed))
    facts["run"] = {"why": outcome.why, "notices": [*sentences(hard), *outcome.notices], "dev": outcome.score,
                    "seconds": round(time.monotonic() - began, 1)}
    if folder is not None:
        close_folder(folder, model)
    keeper.finish()
    return Trained(model, outcome, rows)


def taking_part(number: int, method: Method, seed: int) -> list[int] | None:
    """Rows of the pool that a method learns from: all (None), or if it is bounded at most BOUND, drawn by the seed."""
    if number <= BOUND or not method.bounded:
        return None
    return [int(i) for i in np.sort(np.random.default_rng([seed, 6]).choice(number, BOUND, replace=False))]


def in_memory(pool: Corpus, rows: list[int]) -> Corpus:
    """Some rows of a pool, no longer where they lie."""
    views = [pool.views[i] for i in rows] if pool.views else []
    return Corpus([pool.texts[i] for i in rows], [None] * len(rows), views, pool.source)


def make_encoder(method: Method, settings: Settings, texts: Sequence[str]) -> Encoder | Bag:
    """The encoder that was named, or for a method of words the bag of their own."""
    if method.words:
        return Bag.fit(texts, int(settings.hyper.get("vocabulary", method.defaults["vocabulary"])),
                       tf_idf=method.words == "tf-idf")
    encoder = load_encoder(settings.encoder, settings.plan.max_tokens, method.depths)
    prepare(encoder, settings.plan)
    return encoder


def make_problem(encoder: Encoder | Bag, objective: Objective, labelled: Corpus, pool: Corpus, classes: Classes,
                 settings: Settings, report: Report = lambda line: None, truth: list[Any] | None = None) -> Problem:
    """Token ids or frozen vectors of all texts, labelled first, in as many views as the method wants."""
    plan, method = settings.plan, objective.method
    y = torch.from_numpy(classes.matrix(labelled.labels))
    objective.pseudo.meet(y)
    views = [joined(labelled.texts, pool.texts)]
    if method.strong_views and len(pool):
        views += [joined(labelled.texts, view) for view in strong_views(pool, classes.names, settings.seed)]

    store = partial(stored_vectors, encoder)

    def progress(done: int, total: int) -> None:
        report({"encoded": done, "texts": total})

    given = Given(views[0], y, encoder, lambda: store()(views[0], progress), settings.seed)
    began = method.start(given) if method.start is not None else Began()
    source: Source
    tokens, states = cache_folder() / "tokens", cache_folder() / "states"
    if plan.frozen:
        source = VectorSource([store().rows(view, progress) for view in views], drop=plan.token_drop)
    elif plan.frozen_layers and isinstance(encoder, Encoder):
        source = StateSource(encoder, views, folder=states, drop=plan.token_drop, tokens=tokens)
    else:
        source = TokenSource(encoder, views, drop=plan.token_drop, folder=tokens)
    known = None if truth is None else torch.from_numpy(classes.matrix(truth))
    return Problem(source, y, len(pool), len(views), known, labelled.task, began)


def stored_vectors(encoder: Encoder | Bag) -> VectorStore:
    """Where an encoder's vectors are kept."""
    assert isinstance(encoder, Encoder), "a bag of words is not kept as vectors"
    return VectorStore(cache_folder() / "vectors", encoder)


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


def strong_views(pool: Corpus, names: Sequence[object], seed: int) -> list[Sequence[str]]:
    """The views that came with the pool, else one made by word edits."""
    if pool.views:
        return columns_of(pool.views)
    return [WordEdits.fit(pool.texts, seed=seed, keep=[str(name) for name in names]).views(pool.texts, seed)]


def make_judge(model: Fitted, dev: Corpus, objective: Objective, problem: Problem) -> Callable[[], float]:
    """Scores the model, as it stands, on the dev texts by micro F1, under the rule that its method decides by."""
    names, truth = model.classes.names, model.classes.matrix(dev.labels, source=dev.source)
    if np.isnan(truth).any():
        raise BadInput(f"{dev.source}: some labels of dev texts are unknown; give texts whose labels are all known.")

    # where the encoder does not learn, the dev texts are encoded once
    h = stored_vectors(model.encoder)(dev.texts) if isinstance(model.network.encoder, Frozen) else None

    def judge() -> float:
        scores = model.raw_scores(dev.texts) if h is None else model.classified(h).scores.cpu().numpy()
        if problem.task == "multi-class":
            return float(multi_class(truth.argmax(axis=1), scores.argmax(axis=1), names)["micro_f1"])
        decide = fit_decision(scores, objective, problem, "dev texts")
        return float(multi_label(truth > 0, decide(scores), scores, names)["micro_f1"])
    return judge


def make_decision(model: Fitted, dev: Corpus | None, objective: Objective, problem: Problem, plan: Plan,
                  seed: int) -> Decision:
    """The decision of a trained model, fitted on scores of the pool; without one, of dev or labelled texts."""
    if problem.unlabelled:
        rows = np.sort(shuffled(np.random.default_rng([seed, 6]), problem.unlabelled)[: plan.survey]).astype(np.int64)
        scores = outputs(objective, problem.source, problem.labelled + rows)[1].numpy()
        return fit_decision(scores, objective, problem, f"{len(rows)} unlabelled texts")
    if dev is not None:
        return fit_decision(model.scores(dev.texts), objective, problem, f"{len(dev)} dev texts")
    scores = outputs(objective, problem.source, np.arange(problem.labelled))[1].numpy()
    return fit_decision(scores, objective, problem, f"{problem.labelled} labelled texts")


def fit_decision(scores: np.ndarray, objective: Objective, problem: Problem, source: str) -> Decision:
    """Rules for a method's scores (N, K); log-odds have a natural cut, angular scores take the labelled frequencies."""
    method = objective.method
    return Decision.fit(scores, prior(problem.y).double().numpy(), source=source, logits=method.logits,
                        slope=method.slope, chosen="fixed" if method.logits else "prior-quantile")
