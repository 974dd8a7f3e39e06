"""What is fitted after the last step: temperature, unknown texts, the votes of words and neighbours, the decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from halflabel.data.corpus import Corpus
from halflabel.devices import few_blas_threads
from halflabel.encoders.neighbours import NeighbourVote, texts_to_keep
from halflabel.encoders.ngrams import fit_ngram_model
from halflabel.evaluation.confidence import UnknownDetector, fit_temperature, softmax, unit
from halflabel.evaluation.decisions import Decision
from halflabel.methods.unknown_classes import find_unknown_classes
from halflabel.nn.pseudo_labels import label_frequencies
from halflabel.persistence.model import TrainedModel
from halflabel.randomness import Stream, generator, shuffled
from halflabel.training.loop import Trainer
from halflabel.training.objective import Objective, Problem
from halflabel.training.statistics import outputs
from halflabel.types import Plan, Shape

CALIBRATION_TEXTS = 2000  # pool texts that temperature and class means are fitted on, at most
WORD_TEXTS = 20_000  # pool texts that a model of words learns, at most
MAX_FEATURES = 4096  # of texts whose distance from classes is measured


@few_blas_threads()
def complete(model: TrainedModel, objective: Objective, problem: Problem, trainer: Trainer, texts: Sequence[str],
             dev: Corpus | None) -> TrainedModel:
    """The trained model with all that it needs for prediction; a pool that was abandoned has no vote."""
    plan, seed = trainer.plan, trainer.seed
    if problem.task == "multi-class":
        model = calibrated(model, objective, problem, plan, seed)
    if not trainer.discarded_steps:
        model = with_votes(model, objective, problem, plan, texts, seed)
    if problem.task == "multi-label" and model.decision is None:
        model = replace(model, decision=make_decision(model, dev, objective, problem, plan, seed))
    return model


def calibrated(model: TrainedModel, objective: Objective, problem: Problem, plan: Plan, seed: int) -> TrainedModel:
    """The model with a temperature and class means, fitted on the labelled texts and a sample of the pool.

    At the temperature its mean confidence in the pool is that of the method's start, which held-out labels calibrated:
    training steps on pseudo-labels leave a model that is too sure of itself.
    """
    pool = np.sort(shuffled(generator(seed, Stream.DECISION_SAMPLE), problem.unlabelled)[:CALIBRATION_TEXTS])
    rows = np.concatenate([np.arange(problem.labelled), problem.labelled + pool.astype(np.int64)])
    f, scores = (part.numpy() for part in outputs(objective, problem.inputs, rows)) if len(rows) else (None, None)
    if f is None or scores is None or not np.isfinite(scores).all():
        return model
    n, labels, confidence = problem.labelled, model.shape.labels, problem.start.confidence
    if confidence is not None and len(pool) and plan.steps:
        model.facts["temperature"] = fit_temperature(scores[n:], confidence)
    if len(pool):
        model.facts["pool_predictions"] = np.bincount(scores[n:].argmax(axis=1), minlength=labels).tolist()
    if not n or f.shape[1] > MAX_FEATURES:
        return model
    y, f, number = problem.y.argmax(dim=1).cpu().numpy(), unit(f), None
    if problem.start.facts.get("unknown"):  # held-out labels support that clusters without labels are unknown classes
        found = find_unknown_classes(f[:n], y, f[n:], labels, generator(seed, Stream.UNKNOWN_CLASSES))
        number = None if found is None else found.number(f[n:])
    return replace(model, unknown=UnknownDetector.fit(f[:n], y, f[n:], labels, number))


def number_of_voters(objective: Objective, problem: Problem, shape: Shape) -> int:
    """How many pool texts `with_votes` evaluates after training, at most."""
    if objective.method.soft_labels is None or problem.task == "multi-label":
        return 0
    return min(problem.unlabelled, texts_to_keep(shape.width, shape.labels))


def with_votes(model: TrainedModel, objective: Objective, problem: Problem, plan: Plan, texts: Sequence[str],
               seed: int) -> TrainedModel:
    """The model whose scores have two votes added: of words, and of neighbours in the pool.

    Both have learned the soft labels of the pool, but their errors differ from those of the encoder. So that all votes
    have the same weight, logits of classes are scaled as the network's are; for several labels per text they are
    log-odds already, and the decision takes their mean. Temperature or decision are fitted on pool texts that other
    votes did not learn. A decision needs many, since it has a threshold for each label: two such models of words score
    a half each. Neighbours vote for one label per text, if clusters of the pool are classes.
    """
    several = problem.task == "multi-label"
    number = min(plan.survey, problem.unlabelled) if several else min(CALIBRATION_TEXTS, problem.unlabelled // 5)
    if objective.method.soft_labels is None or not number:
        return model
    y = torch.cat([problem.y.cpu(), objective.method.soft_labels().cpu()]).numpy()
    # Where no cluster supports the soft labels, a trained network knows more: it learned from the labels.
    as_network = plan.steps > 0 and not several and not problem.start.clusters
    voters = max(number, number_of_voters(objective, problem, model.shape))
    sample = shuffled(generator(seed, Stream.DECISION_SAMPLE), problem.unlabelled)[
        : voters if as_network else WORD_TEXTS].astype(np.int64)
    rows = np.concatenate([np.arange(problem.labelled), problem.labelled + np.sort(sample)])
    held_out = problem.labelled + np.sort(sample[:number])
    if as_network:
        pool = rows[problem.labelled :]
        y[pool] = softmax(outputs(objective, problem.inputs, pool)[1].numpy(), model.temperature)
        if not np.isfinite(y).all():
            return model
    folds = [held_out[::2], held_out[1::2]] if several else [held_out]
    places = [np.searchsorted(rows, fold) for fold in folds]
    fitted = fit_ngram_model([texts[i] for i in rows.tolist()], y[rows], places, problem.task)
    if fitted is None:
        return model
    kept = np.concatenate(folds)
    if problem.start.clusters:
        kept = np.concatenate([np.arange(problem.labelled), problem.labelled + np.sort(sample[:voters])])
    f, scores = (part.numpy() for part in outputs(objective, problem.inputs, kept))
    if not np.isfinite(scores).all():
        return model
    (words, votes), neighbours, temperature = fitted, None, model.temperature
    if several:
        decision = fit_decision(scores + votes, objective, problem, f"{number} unlabelled texts", votes=2)
        return replace(model, words=words.as_stored(), decision=decision)
    if problem.start.clusters:
        inside = np.searchsorted(kept, held_out)
        every = NeighbourVote.of(f, y[kept])
        votes, scores = votes + every.without(inside).logits(f[inside]), scores[inside]
        neighbours = every.scaled(temperature).as_stored()
    confidence = problem.start.confidence or float(softmax(scores, temperature).max(axis=1).mean())
    model.facts["temperature"] = fit_temperature(scores + temperature * votes, confidence)
    return replace(model, words=words.scaled(temperature).as_stored(), neighbours=neighbours)


def make_decision(model: TrainedModel, dev: Corpus | None, objective: Objective, problem: Problem, plan: Plan,
                  seed: int) -> Decision:
    """The decision of a trained model, fitted on scores of the pool; without one, of dev or labelled texts."""
    if problem.unlabelled:
        rng = generator(seed, Stream.DECISION_SAMPLE)
        rows = np.sort(shuffled(rng, problem.unlabelled)[: plan.survey]).astype(np.int64)
        scores = outputs(objective, problem.inputs, problem.labelled + rows)[1].numpy()
        return fit_decision(scores, objective, problem, f"{len(rows)} unlabelled texts")
    if dev is not None:
        return fit_decision(model.scores(dev.texts), objective, problem, f"{len(dev)} dev texts")
    scores = outputs(objective, problem.inputs, np.arange(problem.labelled))[1].numpy()
    return fit_decision(scores, objective, problem, f"{problem.labelled} labelled texts")


def fit_decision(scores: np.ndarray, objective: Objective, problem: Problem, source: str, votes: int = 1) -> Decision:
    """Decision rules for a method's scores (N, K): log-odds are cut at 0, others at labelled frequencies.

    Of scores that are the sum of several votes, the mean is calibrated. It is cautious about rare labels, so that they
    are better cut at labelled frequencies too.
    """
    method, frequencies = objective.method, problem.start.frequencies
    if frequencies is None:
        frequencies = label_frequencies(problem.y.cpu()).double().numpy()
    return Decision.fit(scores, frequencies, source=source, logits=method.logits, slope=method.slope / votes,
                        chosen="fixed" if method.logits and votes == 1 else "prior-quantile")
