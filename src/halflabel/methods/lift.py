"""halflabel's own method: a closed-form classifier on frozen vectors, then fine-tuning on its soft labels."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halflabel.encoders.inference import encode
from halflabel.equations import am_loss, sharpen
from halflabel.evaluation.confidence import unit
from halflabel.methods.closed_form import ClosedForm, fit_closed_form
from halflabel.methods.closed_form_several import (
    LABELS_PER_TEXT,
    Names,
    SeveralLabels,
    fit_several_labels,
    label_means,
    refit_gaussians,
)
from halflabel.methods.contrast import HeldOutContrast, fit_tuned, minutes_needed, validate_contrast
from halflabel.methods.contrast import contrast as tune_by_contrast
from halflabel.methods.gaussian_em import gaussian_em
from halflabel.methods.label_smoothing import (
    corrected_by_words,
    neighbour_graph,
    smoothed,
    word_features,
)
from halflabel.methods.linear_models import LinearModel, distil, logistic_regression
from halflabel.methods.registry import Choice, Range, method
from halflabel.methods.wrong_labels import fit_without_wrong_labels
from halflabel.nn.losses import constant, cross_entropy
from halflabel.nn.network import NormalizedLinear
from halflabel.nn.pseudo_labels import PseudoLabeller, Target
from halflabel.notices import Notice
from halflabel.training.objective import SelfTraining, StartInputs, StartResult
from halflabel.types import Shape

# By whether words improved held-out labels.
NO_CLUSTERS = {
    False: "held-out labels show no benefit from the pool; a model of the labelled texts only labels its texts",
    True: "held-out labels show no benefit from clusters in the pool; training on labelled texts and the pool's words",
}

LIFT_PLANS: dict[str, dict[str, Any]] = {
    "frozen": {"epochs": 0, "warmup": 0},
    "laptop": {"epochs": 3, "epoch_steps": 125, "passes": 2.0, "warmup": 0, "survey": 4000,
               "labelled_batch": 8, "unlabelled_batch": 32},
}

UNDECIDED = "held-out labels do not tell whether clusters in the pool help; these count for {:.0%} of its soft labels"

UNKNOWN = ("{:.0%} of the pool look like classes without labels, and clusters are fitted without them; if they do "
           "belong to the labelled ones, label a few of them")

CONTRAST = ("held-out labels support that the encoder is first fine-tuned on the labelled texts by contrast; clusters "
            "of its pretrained vectors and class names are not used")

DROPPED = "{} of {} labels are likely wrong and are not used on frozen vectors; halflabel check lists such labels"

NAMES = {
    False: "clusters of the pool around the class names do not match the labels; the names are not used",
    True: "the class names are used beside the labels and the pool",
}


@method("lift", task="multi-class", paper="-", subsamples_pool=True, uses_names=True, uses_teachers=True,
        weighs_classes=True, multilabel_method="lift-ml", plans=LIFT_PLANS,
        limits={"power": Range(1.0, 1e3), "wrong_labels": Choice(("keep", "drop")),
                "contrast": Choice(("auto", "off"))})
def lift(shape: Shape, *, lambda1: float = 1.0, power: float = 4.0, wrong_labels: str = "keep",
         contrast: str = "auto") -> SelfTraining:
    """Gaussian EM and logistic regression on frozen vectors, then fine-tuning on their soft labels."""
    head, pseudo_labels = NormalizedLinear(shape), LabelTable(shape, power)
    return SelfTraining(
        head=head, loss=cross_entropy, pseudo_labels=pseudo_labels, weight=constant(lambda1),
        start=lambda inputs: start(head, pseudo_labels, inputs, drop_wrong=wrong_labels == "drop", contrast=contrast),
        closed_form_head=True, averaged_teacher=True, soft_labels=pseudo_labels.soft_labels,
    )


def start(head: NormalizedLinear, pseudo_labels: LabelTable, inputs: StartInputs, *,
          drop_wrong: bool = False, contrast: str = "off") -> StartResult:
    """Fits the closed form; its linear model becomes the head, its soft labels the first pseudo-labels.

    If it was fitted on vectors of teachers, the head is fitted to its soft labels on vectors of the encoder itself.
    Where contrast improves the vectors, the encoder is fine-tuned by it first, and all is fitted on its new vectors.
    """
    x, y, words = inputs.teacher_vectors(), inputs.columns, word_features(inputs.texts)
    names = inputs.names() if inputs.names is not None else None
    closed_form = (x[: len(y)], y, x[len(y) :], words, inputs.y.shape[1])
    fitted, dropped = (fit_without_wrong_labels(*closed_form, seed=inputs.seed, names=names) if drop_wrong
                       else (fit_closed_form(*closed_form, seed=inputs.seed, names=names), 0))
    began, held_out = time.monotonic(), None
    possible = contrast == "auto" and inputs.teachers is None and not (drop_wrong or fitted.unknown) and len(y) > 0
    if possible and inputs.minutes >= minutes_needed(inputs.encoder, inputs.texts[: len(y)]):
        clusters = partial(gaussian_em, names=names) if fitted.uses_names else gaussian_em
        held_out = validate_contrast(inputs.encoder, inputs.texts, x, y, inputs.y.shape[1], inputs.seed,
                                     inputs.progress, clusters)
    by_contrast = held_out is not None and held_out.supports(fitted.trust)
    if held_out is not None and by_contrast:
        fitted = fit_by_contrast(inputs, words, held_out)
    if inputs.class_weights is not None:
        fitted = cost_sensitive(fitted, inputs.class_weights.double().numpy())
    model = fitted.model if inputs.teachers is None else student_of(fitted, inputs)
    head.set(*map(torch.from_numpy, model))
    pseudo_labels.initialise(torch.from_numpy(fitted.soft), fitted.alpha, words if fitted.uses_words else words[:, :0])
    notices = [Notice(CONTRAST)] if by_contrast else [Notice(NAMES[fitted.uses_names])] if inputs.names_given else []
    if dropped:
        notices.append(Notice(DROPPED.format(dropped, len(y))))
    if fitted.unknown:
        notices.append(Notice(UNKNOWN.format(fitted.unknown)))
    if 0.0 < fitted.trust < 1.0:
        notices.append(Notice(UNDECIDED.format(fitted.trust)))
    tried = {} if held_out is None else {"contrast": by_contrast, "contrast_evidence": round(held_out.evidence, 2)}
    result = StartResult(notices=tuple(notices), confidence=mean_confidence(fitted),
                         clusters=by_contrast or fitted.trust > 0.0, facts=facts_of(fitted) | tried,
                         seconds=time.monotonic() - began)
    if result.clusters or not len(fitted.soft):
        return result
    return result._replace(notices=(*notices, Notice(NO_CLUSTERS[fitted.uses_words])), trust=float(fitted.uses_words))


def fit_by_contrast(inputs: StartInputs, words: Any, held_out: HeldOutContrast) -> ClosedForm:
    """Fine-tunes the encoder by contrast and fits the closed form on its vectors."""
    y, n = inputs.columns, len(inputs.y)
    tune_by_contrast(inputs.encoder, inputs.texts[:n], y, inputs.seed, inputs.progress)
    x = unit(encode(inputs.encoder, inputs.texts, consistent=True).astype(np.float64))
    return fit_tuned(x[:n], y, x[n:], words, inputs.y.shape[1], held_out, seed=inputs.seed)


def mean_confidence(fitted: ClosedForm) -> float | None:
    """The mean confidence in the pool of a closed form that held-out labels calibrated; None if there were none."""
    if not len(fitted.soft) or not fitted.held_out[1]:
        return None
    return float(fitted.soft.max(axis=1).mean()) - fitted.excess


def facts_of(fitted: ClosedForm) -> dict[str, Any]:
    """How far labels, pool, words and names were trusted."""
    correct, held_out = fitted.held_out
    return {"held_out": held_out, "held_out_correct": correct, "trust": round(fitted.trust, 4),
            "uses_words": bool(fitted.uses_words), "uses_names": bool(fitted.uses_names),
            "confidence": mean_confidence(fitted), "weights": np.round(fitted.weights, 4).tolist(),
            "smoothing": float(fitted.alpha)} | ({"unknown": round(fitted.unknown, 4)} if fitted.unknown else {})


def cost_sensitive(fitted: ClosedForm, weights: np.ndarray) -> ClosedForm:
    """The closed form with probabilities in proportion to p_k w_k, for class weights w (K,)."""
    soft = fitted.soft * weights
    return fitted._replace(soft=soft / soft.sum(axis=1, keepdims=True),
                           model=LinearModel(fitted.model.weight, fitted.model.bias + np.log(weights)))


def student_of(fitted: ClosedForm, inputs: StartInputs) -> LinearModel:
    """A linear model on the encoder's own vectors, fitted to the soft labels of a closed form on other vectors."""
    x, y, labels = inputs.unit_vectors(), inputs.columns, inputs.y.shape[1]
    first = LinearModel(np.zeros((x.shape[1], labels)), np.zeros(labels))
    if len(np.unique(y)) > 1:
        first = logistic_regression(x[: len(y)], y, x[len(y) :], labels)
    return distil(first, x, np.concatenate([np.eye(labels)[y], fitted.soft]))


NAMES_OF_SEVERAL = {
    False: "the labels are no likelier with the class names than without; the names are not used",
    True: NAMES[True],
}
NO_LABELS = ("no label tells how many labels a text has; {:g} are expected on average, which --set labels_per_text=N "
             "changes")


LIFT_ML_PLANS: dict[str, dict[str, Any]] = {
    "frozen": {"epochs": 0, "warmup": 0},
    "laptop": {"epochs": 2, "epoch_steps": 120, "warmup": 100, "survey": 4000, "head_rate": 1e-2},
}


@method("lift-ml", task="multi-label", paper="-", subsamples_pool=True, uses_names=True, plans=LIFT_ML_PLANS,
        limits={"margin": Range(0.0, 1e3), "labels_per_text": Range(1e-3, 1e6)})
def lift_ml(shape: Shape, *, lambda1: float = 1.0, margin: float = 6.0,
            labels_per_text: float = LABELS_PER_TEXT) -> SelfTraining:
    """Logistic regression on vectors and words, then Gaussians of the pool, then fine-tuning on their soft labels."""
    start = SeveralLabelsStart(NormalizedLinear(shape), SeveralLabelsTable(shape), labels_per_text)
    return SelfTraining(
        head=start.head, loss=lambda logits, y: am_loss(logits, y, 1.0, margin), pseudo_labels=start.pseudo_labels,
        weight=constant(lambda1), start=start, closed_form_head=True, refit=start.refit, averaged_teacher=True,
        soft_labels=lambda: start.pseudo_labels.table, logits=True,
    )


class SeveralLabelsStart:
    """Sets the head of `lift-ml` before the first step and after the last, and the pool's soft labels."""

    fitted: SeveralLabels

    def __init__(self, head: NormalizedLinear, pseudo_labels: SeveralLabelsTable, labels_per_text: float) -> None:
        self.head, self.pseudo_labels, self.labels_per_text = head, pseudo_labels, labels_per_text

    def __call__(self, inputs: StartInputs) -> StartResult:
        """Fits the closed form; its linear model, or what training starts from instead, becomes the head."""
        x, y, words = inputs.unit_vectors(), inputs.y.double().numpy(), word_features(inputs.texts)
        names = inputs.names() if inputs.names is not None else None
        self.fitted = fit_several_labels(x[: len(y)], y, x[len(y) :], words, seed=inputs.seed, names=names,
                                         labels_per_text=self.labels_per_text)
        model = label_means(x, y, self.fitted.soft, self.fitted.names) if inputs.trains else self.fitted.model
        self.head.set(*map(torch.from_numpy, model))
        self.pseudo_labels.table.copy_(torch.from_numpy(self.fitted.soft))
        return StartResult() if names is None else names_of_several(self.fitted.names, labelled=len(y),
                                                                    given=inputs.names_given)

    def refit(self, f: Tensor, y: Tensor, rows: Tensor) -> None:
        """Sets the head to Gaussians of the trained features (N_l + M, H) of labelled texts and of rows (M,)."""
        soft = self.pseudo_labels.table.cpu()[rows]
        self.head.set(*map(torch.from_numpy, refit_gaussians(
            f.double().numpy(), y.double().numpy(), soft.double().numpy(), self.fitted.names)))


def names_of_several(names: Names | None, *, labelled: int, given: bool) -> StartResult:
    """How class names were used for several labels per text; a notice says so if they were given."""
    notices = [Notice(NAMES_OF_SEVERAL[names is not None])] if given else []
    if names is None:
        return StartResult(notices=tuple(notices), facts={"uses_names": False})
    if not labelled:
        notices.append(Notice(NO_LABELS.format(names.prior.sum())))
    return StartResult(notices=tuple(notices), frequencies=names.prior, facts={
        "uses_names": True, "name_slopes": np.round(names.slopes, 2).tolist(),
        "labels_per_text": round(float(names.prior.sum()), 2)})


class SeveralLabelsTable(PseudoLabeller):
    """Soft labels of the pool by the closed form; they stay as they are, since they know the words of the texts."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(shape.unlabelled, shape.labels))

    table: Tensor

    def label(self, p: Tensor) -> Target:
        return Target(p, p.new_ones(len(p)))

    def forward(self, rows: Tensor, predict: Callable[[], Tensor]) -> Target:
        y = self.table[rows]
        return Target(y, y.new_ones(len(y)))


class LabelTable(PseudoLabeller):
    """Pseudo-labels of the whole pool, recomputed at the start of each epoch.

    Labels are sharpened, and weighted by their confidence above chance before that. The mean weight of the pool stays
    that of the closed form: if its labels were not confident, the pool has little influence.
    """

    trains_on_epoch_sample = True
    words: Any  # sparse (N_l + N_u, V), or without columns if words are not used

    def __init__(self, shape: Shape, power: float) -> None:
        super().__init__()
        self.power = power
        self.register_buffer("table", torch.full((shape.unlabelled, shape.labels), 1.0 / shape.labels))
        self.register_buffer("weight", torch.zeros(shape.unlabelled))
        self.register_buffer("alpha", torch.zeros(()))  # strength of smoothing
        self.register_buffer("trust", torch.zeros(()))  # mean weight of the first labels

    table: Tensor
    weight: Tensor
    alpha: Tensor
    trust: Tensor

    def initialise(self, soft: Tensor, alpha: float, words: Any) -> None:
        """Sets the first labels to calibrated soft labels of the pool (N_u, K)."""
        self.words = words
        self.table.copy_(sharpen(soft, 1.0 / self.power))
        self.weight.copy_(above_chance(soft))
        self.alpha.fill_(alpha)
        self.trust.copy_(self.weight.mean())

    def label(self, p: Tensor) -> Target:
        return Target(sharpen(p, 1.0 / self.power), p.new_ones(len(p)))

    def soft_labels(self) -> Tensor:
        """The labels before they were sharpened, (N_u, K)."""
        return sharpen(self.table, self.power)

    @torch.no_grad()
    def update_epoch(self, rows: Tensor, p: Tensor, f: Tensor, y: Tensor) -> None:
        """Smooths the teacher's probabilities over neighbours in feature space and corrects them by words."""
        graph = neighbour_graph(f.numpy())
        p_smoothed = smoothed(graph, torch.cat([y, p]).numpy(), float(self.alpha))[len(y) :]
        words = self.words[np.concatenate([np.arange(len(y)), len(y) + rows.numpy()])]
        soft = torch.from_numpy(corrected_by_words(words, y.numpy(), p_smoothed))
        weight = above_chance(soft)
        weight = (float(self.trust) * weight / weight.mean().clamp_min(1e-6)).clamp_max(1.0)
        self.table[rows] = sharpen(soft, 1.0 / self.power).to(self.table)
        self.weight[rows] = weight.to(self.weight)

    def forward(self, rows: Tensor, predict: Callable[[], Tensor]) -> Target:
        return Target(self.table[rows], self.weight[rows])


def above_chance(p: Tensor) -> Tensor:
    """Confidence scaled from [1/K, 1] to [0, 1], (N,) from probabilities (N, K)."""
    chance = 1.0 / p.shape[1]
    return (p.amax(dim=1) - chance) / (1.0 - chance)
