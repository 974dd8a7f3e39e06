"""From corpora to a trained model: encoder, views, method and plan are put together, and the loop runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from halflabel.after_training import complete, fit_decision, number_of_voters
from halflabel.atomic import cache_folder
from halflabel.cache_limit import prune_once
from halflabel.class_names import Names, classes_with_names, name_vectors, names_of_labels, phrases_for
from halflabel.data.augmentation import WordEdits
from halflabel.data.corpus import Corpus, columns_of, concat
from halflabel.data.labels import Classes
from halflabel.devices import Compute, few_blas_threads
from halflabel.encoders.cache import EncoderCache
from halflabel.encoders.catalogue import is_auto
from halflabel.encoders.inputs import Inputs, TokenInputs, VectorInputs
from halflabel.encoders.loading import choose_encoder, load_encoder
from halflabel.encoders.text_encoder import BagOfWords, TextEncoder
from halflabel.errors import DataError, SettingError
from halflabel.evaluation.metrics import multi_class, multi_label
from halflabel.integrity import read_json
from halflabel.methods.registry import Method, find
from halflabel.nn.network import HiddenHead, PrecomputedVectors
from halflabel.nn.pseudo_labels import (
    REASONS,
    class_weights,
    unlearnable_labels,
    unlearnable_notices,
)
from halflabel.notices import ContrastProgress, EncodingProgress, Notice, Report, silent
from halflabel.outlook import HeldOutLabels, expected_quality, most_helpful
from halflabel.persistence.model import TrainedModel, close_folder, fingerprint, open_run, prepare_folder, versions
from halflabel.persistence.model_folder import keep_labelled, write_text_hashes
from halflabel.plans import POOL_LIMIT
from halflabel.randomness import Stream, generator
from halflabel.settings import Settings
from halflabel.training.checkpoint import RESTART, FolderStore, NoStore
from halflabel.training.distributed import ALONE, Ranks
from halflabel.training.loop import Outcome, Trainer, train
from halflabel.training.objective import Objective, Problem, StartInputs, StartResult
from halflabel.training.time_budget import fit_to_minutes, within_passes
from halflabel.types import Plan, Shape

T = TypeVar("T")
CENTRE_TEXTS = 200  # whose mean is the centre of texts, for a head that starts from class names
HEAD_FROM_NAMES = "the class names are the first weights of the classifier"


@dataclass(frozen=True, eq=False)
class Trained:
    """A model and how its run went."""

    model: TrainedModel
    outcome: Outcome
    rows: list[int] | None = None  # of the pool that were trained on; None for all


def fit(labelled: Corpus, pool: Corpus, settings: Settings, *, dev: Corpus | None = None,
        truth: list[Any] | None = None, classes: Classes | None = None, folder: Path | None = None,
        resume: bool = False, report: Report = silent, checkpoint_seconds: float = 60.0,
        keep_labels: bool = True, compute: Compute | None = None, ranks: Ranks = ALONE) -> Trained:
    """Trains a method on clean corpora; `classes` fixes labels that may not occur in the labelled texts.

    The folder keeps the labelled texts, so that the model can be updated later, unless `keep_labels` is false.
    """
    began, compute = time.monotonic(), compute or Compute()
    given_classes, classes = classes, classes or all_classes(labelled, settings.names)
    texts = fingerprint(labelled, pool, given_classes)
    method, given = find(settings.method), len(pool)
    if not len(labelled) and not method.uses_names:
        raise SettingError(f"the method {method.name} needs labelled texts; choose lift, for which class names and "
                           "unlabelled texts are enough, or label some texts.")
    rows = subsample(len(pool), method, settings.seed)
    if rows is not None:
        pool, truth = in_memory(pool, rows), truth and [truth[i] for i in rows]
    earlier = None if folder is None else ranks.from_first(partial(open_run, folder, settings, texts, resume,
                                                                   ranks.number))
    if method.labelled_as_pool and not given:
        pool = labelled.without_labels()
    chosen, choice = settings, list[Notice]()
    if is_auto(settings.encoder):
        chosen, choice = ranks.from_first(partial(with_chosen_encoder, settings, labelled, classes,
                                                  folder if earlier else None))
    teacher = make_encoder(method, chosen, concat(labelled.texts, pool.texts)).on(compute)
    encoder = teacher if settings.plan.frozen else teacher.parts[0]
    shape = Shape(len(classes.names), encoder.width, len(labelled), len(pool))
    torch.manual_seed(settings.seed)
    objective = Objective(PrecomputedVectors() if settings.plan.frozen else encoder, method(shape, **settings.hyper),
                          ranks)
    problem = make_problem(encoder, objective, labelled, pool, classes, settings, report, truth, teacher)
    objective.to(compute.device)
    ranks.copy_first([*objective.parameters(), *objective.buffers()])
    problem = replace(problem, y=problem.y.to(compute.device), start=ranks.from_first(lambda: problem.start),
                      weight=None if problem.weight is None else problem.weight.to(compute.device))
    plan = Plan.from_json(earlier["plan"]) if earlier else within_passes(settings.plan, problem.unlabelled)
    if not problem.labelled:  # only class names: nothing to warm up on
        plan = replace(plan, warmup=0)
    trainer = Trainer(objective, problem, plan, settings.seed)
    if not earlier:
        fit_to_minutes(trainer, report, afterwards=number_of_voters(objective, problem, shape),
                       spent=problem.start.seconds)
    outlook = look_ahead(encoder, problem, labelled, classes, chosen, method) if ranks.first else {}
    unlearnable = unlearnable_labels(problem.y, classes.names) if problem.task == "multi-label" else []
    if problem.start.frequencies is not None:  # names tell what labels mean that no text has
        unlearnable = [entry for entry in unlearnable if entry["why"] != REASONS["never"]]
    facts: dict[str, Any] = {
        "encoder": chosen.encoder, "plan": trainer.plan.to_json(), "seed": settings.seed, "versions": versions(),
        "compute": compute.to_json() | {"processes": ranks.number},
        "texts": {"labelled": len(labelled), "unlabelled": given, "fingerprint": texts},
        "matrix": given_classes is not None, "hard_labels": unlearnable,
        **({"class_weight": settings.class_weight} if settings.class_weight else {})}
    model = TrainedModel(encoder, objective.network, classes, settings.method, settings.hyper, shape, facts)
    dev_scorer = make_dev_scorer(model, dev, objective, problem) if dev is not None else None
    if not ranks.first:  # one process writes
        folder, report = None, silent
    if folder is not None and not earlier:
        write_text_hashes(folder, labelled, pool)
        if keep_labels:
            keep_labelled(folder, labelled)
        prepare_folder(folder, model, trainer.plan, settings)
    store = NoStore() if folder is None else FolderStore(folder)
    notices = [*choice, *unlearnable_notices(unlearnable)]
    for notice in notices:
        report(notice)
    outcome = train(trainer, store, report, dev_scorer, checkpoint_seconds=checkpoint_seconds)
    model = complete(model, objective, problem, trainer, concat(labelled.texts, pool.texts), dev)
    facts["start"], facts["outlook"] = dict(problem.start.facts), outlook
    facts["run"] = {"why": outcome.reason, "notices": [str(notice) for notice in (*notices, *outcome.notices)],
                    "dev": outcome.dev_score, "seconds": round(time.monotonic() - began, 1)}
    if folder is not None:
        close_folder(folder, model)
    store.finish()
    return Trained(model, outcome, rows)


@few_blas_threads()
def look_ahead(encoder: TextEncoder, problem: Problem, labelled: Corpus, classes: Classes, settings: Settings,
               method: Method) -> dict[str, Any]:
    """What to expect of the model, and what would help most; texts are encoded only if their vectors are cached."""
    several, y, held_out = problem.task == "multi-label", problem.y.cpu().numpy(), None
    learned = problem.start.facts.get("contrast")  # the encoder knows the labels: none is held out from it
    if len(y) and not method.bag_of_words and not learned and (settings.plan.frozen or method.uses_names):
        held_out = HeldOutLabels.of(partial(vector_cache(encoder), labelled.texts), y, several=several,
                                    seed=settings.seed)
    expected = expected_quality(held_out, problem.start.facts, several=several, seed=settings.seed)
    could_use_names = method.takes_names and not problem.start.facts.get("uses_names")
    return {"names_given": bool(settings.names), "expected": expected, "would_help": most_helpful(
        classes.names, np.nansum(y, axis=0), held_out, encoder=settings.encoder, tried_labels=bool(settings.names),
        could_use_names=could_use_names and not names_given(settings, labelled))}


def names_given(settings: Settings, labelled: Corpus) -> bool:
    """Whether class names were given that are not just the labels."""
    return bool(settings.names) and settings.names != names_of_labels(labelled.labels)


def refitting(model: TrainedModel, pool: Corpus, names: Names) -> Callable[[Corpus], TrainedModel] | None:
    """Trains the method of a model again on other labelled texts and a pool; None if its encoder was trained as well.

    That would take as long as the model itself did, every time. For several labels labelled texts may lack a label.
    """
    if not model.frozen or model.task == "multi-label" or find(model.method).bag_of_words:
        return None
    facts = model.facts
    settings = Settings(model.method, Plan.from_json(facts["plan"]), facts["encoder"], facts["seed"], model.settings,
                        names, facts.get("class_weight"))
    return lambda labelled: fit(labelled, pool, settings).model


def all_classes(labelled: Corpus, names: Names) -> Classes:
    """The classes of the labelled texts and of the class names."""
    return classes_with_names(labelled.labels, names)[0] if names else Classes.of(labelled.labels)


def subsample(number: int, method: Method, seed: int) -> list[int] | None:
    """Rows of the pool that a method trains on: all (None), or a random sample if it can only hold so many."""
    if number <= POOL_LIMIT or not method.subsamples_pool:
        return None
    rows = generator(seed, Stream.POOL_SUBSAMPLE).choice(number, POOL_LIMIT, replace=False)
    return [int(i) for i in np.sort(rows)]


def in_memory(pool: Corpus, rows: list[int]) -> Corpus:
    """Some rows of a pool on disk, as lists."""
    views = [pool.views[i] for i in rows] if pool.views else []
    return Corpus([pool.texts[i] for i in rows], [None] * len(rows), views, pool.source)


def make_encoder(method: Method, settings: Settings, texts: Sequence[str]) -> TextEncoder:
    """The encoder by name, or for methods on bags of words the vocabulary of the texts."""
    if method.bag_of_words:
        size = int(settings.hyper.get("vocabulary", method.defaults["vocabulary"]))
        return BagOfWords.fit(texts, size, tf_idf=method.bag_of_words == "tf-idf")
    encoder = load_encoder(settings.encoder, settings.plan.max_tokens, method.depths)
    freeze(encoder.parts[0], settings.plan)
    return encoder


def with_chosen_encoder(settings: Settings, labelled: Corpus, classes: Classes,
                        resumed: Path | None) -> tuple[Settings, list[Notice]]:
    """The settings with the encoder that held-out labels choose, or that a run which is resumed has chosen."""
    if resumed is not None:
        return replace(settings, encoder=str(read_json(resumed / "config.json", RESTART)["encoder"])), []
    name, notice = choose_encoder(settings.encoder, labelled.texts, classes.matrix(labelled.labels), settings.plan,
                                  settings.seed)
    return replace(settings, encoder=name), [notice]


@few_blas_threads()
def make_problem(encoder: TextEncoder, objective: Objective, labelled: Corpus, pool: Corpus, classes: Classes,
                 settings: Settings, report: Report = silent, truth: list[Any] | None = None,
                 teacher: TextEncoder | None = None) -> Problem:
    """Token ids or precomputed vectors of all texts, labelled first, in as many views as the method wants.

    A `teacher` that is another encoder gives the vectors that soft labels are fitted on before the first step.
    """
    plan, method = settings.plan, objective.method
    y = torch.from_numpy(classes.matrix(labelled.labels))
    weights = None if settings.class_weight is None else class_weights(settings.class_weight, y, classes.names)
    objective.pseudo_labels.set_labelled(y)
    views = [concat(labelled.texts, pool.texts)]
    if method.strong_views and len(pool):
        views += [concat(labelled.texts, view) for view in strong_views(pool, classes.names, settings.seed)]

    def progress(done: int, total: int) -> None:
        report(EncodingProgress(done, total))

    def once(compute: Callable[[], T]) -> T:
        """What is cached is computed once on each machine."""
        with objective.ranks.one_first():
            return compute()

    prune_once()
    cache, start = EncoderCache(cache_folder(), encoder), StartResult()
    names = partial(name_vectors, teacher or encoder, phrases_for(classes, settings.names)) if settings.names else None
    if names is not None and isinstance(method.head, HiddenHead):
        rows = np.unique(np.linspace(0, len(views[0]) - 1, CENTRE_TEXTS, dtype=np.int64)).tolist()
        vectors = once(lambda: cache.vector_rows(views[0] if plan.frozen else [views[0][i] for i in rows], progress))
        sample = np.stack([vectors[i] for i in rows] if plan.frozen else list(vectors))
        method.head.start_from_names(torch.from_numpy(names()).float(), torch.from_numpy(sample).float())
        start = StartResult(notices=(Notice(HEAD_FROM_NAMES),), facts={"uses_names": True})
    if method.start is not None:
        teachers = None
        if teacher is not None and teacher is not encoder:
            teachers = partial(once, partial(EncoderCache(cache_folder(), teacher).vectors, views[0], progress))
        fitted = method.start(StartInputs(
            views[0], y, encoder, lambda: once(lambda: cache.vectors(views[0], progress)), settings.seed, names,
            teachers, names_given(settings, labelled), weights, trains=plan.steps > 0,
            minutes=0.0 if plan.frozen or not plan.steps else plan.minutes,
            progress=lambda done, total: report(ContrastProgress(done, total))))
        start = fitted._replace(notices=(*start.notices, *fitted.notices), facts={**start.facts, **fitted.facts})
    inputs: Inputs
    if plan.frozen:
        inputs = once(lambda: VectorInputs([cache.vector_rows(view, progress) for view in views], drop=plan.token_drop))
    else:
        inputs = TokenInputs(encoder, views, drop=plan.token_drop, limit=plan.step_tokens, cache=cache)
    known = None if truth is None else torch.from_numpy(classes.matrix(truth))
    weight = None if weights is None else weights[y.argmax(dim=1)]
    return Problem(inputs, y, len(pool), len(views), known, find(settings.method).task, start, weight)


def vector_cache(encoder: TextEncoder) -> Callable[..., np.ndarray]:
    """A function that returns cached vectors of texts, (N, H)."""
    return EncoderCache(cache_folder(), encoder).vectors


def freeze(encoder: TextEncoder, plan: Plan) -> None:
    """Freezes what the plan does not train: word embeddings and lowest layers; removes dropout if it says so."""
    for module in encoder.modules():
        if isinstance(module, nn.Dropout) and not plan.dropout:
            module.p = 0.0
        if isinstance(module, nn.Embedding) and not plan.embeddings:
            module.requires_grad_(False)
    if plan.frozen_layers and not plan.frozen:
        encoder.freeze_layers(number_of_frozen(plan.frozen_layers, len(encoder.layers)))


def number_of_frozen(layers: float, of: int) -> int:
    """How many of an encoder's layers are frozen, for a number of layers or a share of them below 1."""
    if layers < 1:
        return int(layers * of)
    if not of:
        raise SettingError("The layers of this encoder cannot be told apart; set frozen_layers=0 to train them all.")
    if layers >= of:
        raise SettingError(f"frozen_layers={layers:g} leaves nothing to train: the encoder has {of} layers; give "
                           "fewer, or use the plan frozen.")
    return int(layers)


def strong_views(pool: Corpus, names: Sequence[object], seed: int) -> list[Sequence[str]]:
    """The views that came with the pool, else one made by word edits."""
    if pool.views:
        return columns_of(pool.views)
    return [WordEdits.fit(pool.texts, seed=seed, keep=[str(name) for name in names]).views(pool.texts, seed)]


def make_dev_scorer(model: TrainedModel, dev: Corpus, objective: Objective, problem: Problem) -> Callable[[], float]:
    """A function that scores the model as it stands on the dev set: micro F1 under the method's decision rule."""
    names, truth = model.classes.names, model.classes.matrix(dev.labels, source=dev.source)
    if np.isnan(truth).any():
        raise DataError(f"{dev.source}: some labels of dev texts are unknown; give texts whose labels are all known.")

    # a frozen encoder encodes the dev set once
    h = vector_cache(model.encoder)(dev.texts) if isinstance(model.network.encoder, PrecomputedVectors) else None

    def score() -> float:
        scores = model.raw_scores(dev.texts) if h is None else model.classify(h, dev.texts).scores.cpu().numpy()
        if problem.task == "multi-class":
            return float(multi_class(truth.argmax(axis=1), scores.argmax(axis=1), names)["micro_f1"])
        decide = fit_decision(scores, objective, problem, "dev texts")
        # before a head is fitted again its scores only rank texts
        rule = None if objective.method.refit is None else "prior-quantile"
        return float(multi_label(truth > 0, decide(scores, rule), scores, names)["micro_f1"])
    return score
