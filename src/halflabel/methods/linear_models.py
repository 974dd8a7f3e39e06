"""Linear classifiers, logits = x W + b: logistic regression, sums of models, and regression on soft labels.

Shapes: N texts, vectors x (N, H), K labels, y (N,) columns of labels, soft labels (N, K).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from halflabel.arrays import Array, Columns


class LinearModel(NamedTuple):
    """A linear classifier, logits = x W + b."""

    weight: Array  # (H, K)
    bias: Array  # (K,)

    def logits(self, x: Any) -> Array:
        """(N, H), dense or sparse, -> (N, K)."""
        return np.asarray(x @ self.weight + self.bias)

    def log_probabilities(self, x: Array) -> Array:
        """(N, H) -> (N, K)."""
        from scipy.special import log_softmax

        return np.asarray(log_softmax(self.logits(x), axis=1))


Fit = Callable[[Array, Columns, Array, int], LinearModel]  # x, y, pool, labels -> model


def logistic_regression(x: Array, y: Columns, pool: Array, labels: int, *, strength: float = 10.0) -> LinearModel:
    """Logistic regression on the labelled texts; a class without texts is never predicted."""
    from sklearn.linear_model import LogisticRegression

    with few_texts_per_class():
        return from_sklearn(LogisticRegression(C=strength, max_iter=300).fit(x, y), labels)


@contextmanager
def few_texts_per_class() -> Iterator[None]:
    """Suppresses scikit-learn's remark that one or two texts per class look like regression; no setting of it does."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes is greater than 50%", UserWarning)
        yield


def from_sklearn(model: Any, labels: int) -> LinearModel:
    """A fitted linear classifier of scikit-learn, extended to all labels."""
    coefficients, intercept = model.coef_, model.intercept_
    if len(model.classes_) == 2:
        coefficients = np.stack([-coefficients[0] / 2, coefficients[0] / 2])
        intercept = np.array([-intercept[0] / 2, intercept[0] / 2])
    weight, bias = np.zeros((coefficients.shape[1], labels)), np.full(labels, intercept.min() - 10.0)
    weight[:, model.classes_], bias[model.classes_] = coefficients.T, intercept
    return LinearModel(weight, bias)


def weighted_sum(models: list[LinearModel], weights: Array) -> LinearModel:
    """The linear model whose logits are the weighted sum of the models' logits."""
    return LinearModel(np.sum([w * model.weight for w, model in zip(weights, models, strict=True)], axis=0),
                       np.sum([w * model.bias for w, model in zip(weights, models, strict=True)], axis=0))


def distil(model: LinearModel, x: Array, soft: Array) -> LinearModel:
    """Softmax regression of x (N, H) on soft labels (N, K), with an L2 penalty on the distance from `model`."""
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    x32, soft32 = x.astype(np.float32), soft.astype(np.float32)
    shape = model.weight.shape

    def cost(flat: Array) -> tuple[float, Array]:
        change = flat.reshape(shape[0] + 1, shape[1])
        weight, bias = (model.weight + change[:-1]).astype(np.float32), (model.bias + change[-1]).astype(np.float32)
        log_p = log_softmax(x32 @ weight + bias, axis=1)
        residual = np.exp(log_p) - soft32
        gradient = np.concatenate([x32.T @ residual, residual.sum(axis=0, keepdims=True)]).astype(np.float64) + change
        return float(-(soft32 * log_p).sum() + 0.5 * (change**2).sum()), gradient.ravel()

    result = minimize(cost, np.zeros((shape[0] + 1) * shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 60})
    change = result.x.reshape(shape[0] + 1, shape[1])
    return LinearModel(model.weight + change[:-1], model.bias + change[-1])
