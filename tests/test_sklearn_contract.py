"""scikit-learn's contract: its own checks, meta-estimators, pickles, copies and threads."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import make_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.data.splitting import LabelledFolds
from halflabel.errors import SettingError

SETTINGS = {"epochs": 1, "epoch_steps": 5, "warmup": 20}
TEXTS, LABELS = tiny_texts(6)
POOL, TRUTH = tiny_texts(8, seed=1)
TAGS = [(label, "long") if len(text) > 50 else (label,) for text, label in zip(TEXTS, LABELS, strict=True)]


def words(numbers: np.ndarray) -> list[str]:
    """A text for each row of numbers, with a word for each column and rounded value."""
    values = (np.round(numbers * 2) % 26).astype(int)
    return [" ".join(f"column{ascii_lowercase[k]}{ascii_lowercase[value]}" for k, value in enumerate(row))
            for row in values]


class OnNumbers(TextClassifier):
    """The classifier on texts that stand for rows of numbers, which is what scikit-learn's checks give it."""

    def fit(self, X: Any, y: Any) -> OnNumbers:  # type: ignore[override]
        X, y = validate_data(self, X, y, multi_output=getattr(y, "shape", (0,))[1:] > (1,))
        super().fit(words(X), y)
        return self

    def texts(self, X: Any) -> list[str]:
        check_is_fitted(self, "model_")
        return words(validate_data(self, X, reset=False))

    def predict(self, X: Any) -> np.ndarray:  # type: ignore[override]
        return super().predict(self.texts(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        return super().predict_proba(self.texts(X))

    def decision_function(self, X: Any) -> np.ndarray:
        return super().decision_function(self.texts(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = False
        tags.input_tags.two_d_array = True
        return tags


EXPECTED_TO_FAIL = {
    "check_classifiers_classes": "its labels are -1 and 1, and -1 means not labelled, as in sklearn.semi_supervised",
    "check_class_weight_classifiers": "nb-em refuses class weights; test_classifier.py has methods that take them",
    **dict.fromkeys(("check_classifiers_multilabel_representation_invariance",
                     "check_classifiers_multilabel_output_format_predict",
                     "check_classifiers_multilabel_output_format_predict_proba",
                     "check_classifiers_multilabel_output_format_decision_function"),
                    "nb-em predicts one label per text; the next test checks a method for several"),
}


def test_scikit_learns_checks_pass() -> None:
    with warnings.catch_warnings(action="ignore"):  # the checks themselves warn
        results = check_estimator(OnNumbers("nb-em", plan="frozen"), expected_failed_checks=EXPECTED_TO_FAIL,
                                  on_skip=None)
    names = {status: {result["check_name"] for result in results if result["status"] == status}
             for status in ("passed", "xfail", "skipped")}
    assert names["xfail"] == set(EXPECTED_TO_FAIL)
    assert names["skipped"] <= {"check_array_api_input"}  # which needs an environment variable
    assert {"check_estimators_pickle", "check_fit_idempotent", "check_dict_unchanged"} <= names["passed"]
    assert len(names["passed"]) > 40


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_several_labels_have_scikit_learns_formats(method: str, tiny_encoder: str) -> None:
    from sklearn.utils import estimator_checks

    check = getattr(estimator_checks, f"check_classifiers_multilabel_output_format_{method}")
    check("OnNumbers", OnNumbers("bdd-ml", tiny_encoder, "frozen", settings=SETTINGS))


@pytest.fixture(scope="module")
def fitted(tiny_encoder: str) -> dict[str, TextClassifier]:
    def fit(method: str, y: Any, plan: str = "frozen") -> TextClassifier:
        return TextClassifier(method, tiny_encoder, plan, settings=SETTINGS).fit(TEXTS, y, POOL)

    two = [label if label == "food" else "other" for label in LABELS]
    return {"classes": fit("bdd-s", LABELS), "two": fit("ce", two), "tuned": fit("ce", LABELS, "laptop"),
            "tags": fit("bdd-ml", TAGS), "matrix": fit("bdd-ml", np.eye(3, dtype=int)[[len(t) % 3 for t in TEXTS]]),
            "words": TextClassifier("nb-em").fit(TEXTS, LABELS, POOL)}


def dumped_by_joblib(estimator: TextClassifier) -> TextClassifier:
    stream = io.BytesIO()
    joblib.dump(estimator, stream)
    return joblib.load(stream)


COPIES = {"pickle": lambda estimator: pickle.loads(pickle.dumps(estimator)), "joblib": dumped_by_joblib,
          "deepcopy": copy.deepcopy, "twice": lambda estimator: copy.deepcopy(copy.deepcopy(estimator))}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("kind", ["classes", "tuned", "tags", "matrix", "words"])
def test_copies_are_the_same_estimator(kind: str, way: str, fitted: dict[str, TextClassifier]) -> None:
    estimator = fitted[kind]
    again = COPIES[way](estimator)
    assert again is not estimator and again.model_ is not estimator.model_
    assert again.get_params() == estimator.get_params() and again.notices_ == estimator.notices_
    assert sorted(vars(again)) == sorted(vars(estimator)) and (again.classes_ == estimator.classes_).all()
    assert np.array_equal(again.transduction_, estimator.transduction_)
    assert np.array_equal(again.predict(POOL), estimator.predict(POOL))
    assert np.allclose(again.predict_proba(POOL), estimator.predict_proba(POOL), atol=1e-6)


def test_a_pickle_contains_files_and_no_torch(fitted: dict[str, TextClassifier]) -> None:
    state = fitted["tuned"].__getstate__()
    assert {"config.json", "model.safetensors", "encoder/tokenizer.json"} <= state["model_"].keys()
    assert b"torch" not in pickle.dumps(state | {"model_": {}})
    unfitted = pickle.loads(pickle.dumps(TextClassifier("ce")))
    with pytest.raises(NotFittedError):
        unfitted.predict(TEXTS)


def test_clones_are_not_fitted(fitted: dict[str, TextClassifier]) -> None:
    again = clone(fitted["classes"])
    assert again.get_params() == fitted["classes"].get_params() and not hasattr(again, "model_")


def test_eight_threads_predict_the_same(fitted: dict[str, TextClassifier], tmp_path: Path) -> None:
    fitted["classes"].save(tmp_path / "model")
    before = torch.get_num_threads()
    for estimator in (fitted["classes"], fitted["tags"], TextClassifier.load(tmp_path / "model")):
        expected = estimator.predict_proba(TEXTS * 3)
        with ThreadPoolExecutor(8) as pool:
            for found in pool.map(lambda _, estimator=estimator: estimator.predict_proba(TEXTS * 3), range(24)):
                assert np.allclose(found, expected, atol=1e-5)
    assert torch.get_num_threads() == before


def test_scores_and_log_probabilities(fitted: dict[str, TextClassifier]) -> None:
    classes, two, tags = fitted["classes"], fitted["two"], fitted["tags"]
    assert (classes.classes_[classes.decision_function(POOL).argmax(axis=1)] == classes.predict(POOL)).all()
    scores = two.decision_function(POOL)
    assert scores.shape == (24,) and ((scores > 0) == (two.predict(POOL) == two.classes_[1])).all()
    assert np.allclose(1 / (1 + np.exp(-tags.decision_function(POOL))), tags.predict_proba(POOL))
    for estimator in (classes, two, tags):
        assert np.allclose(np.exp(estimator.predict_log_proba(POOL)), estimator.predict_proba(POOL))
    assert 0 <= make_scorer(roc_auc_score, response_method="decision_function")(
        two, POOL, [label != "food" for label in TRUTH]) <= 1


def test_pipelines_grids_and_cross_validation_with_unlabelled_texts(tiny_encoder: str) -> None:
    X, y = np.array([*TEXTS, *POOL], dtype=object), np.array([*LABELS, *([None] * len(POOL))], dtype=object)
    pipeline = make_pipeline(FunctionTransformer(lambda texts: [text.strip() for text in texts]),
                             TextClassifier("ce", tiny_encoder, "frozen", settings=SETTINGS))
    scores = cross_val_score(pipeline, X, y, cv=LabelledFolds(2), error_score="raise")
    assert scores.shape == (2,)
    grid = {"textclassifier__method": ["ce", "bdd-s"], "textclassifier__settings": [SETTINGS]}
    search = GridSearchCV(pipeline, grid, cv=LabelledFolds(2), error_score="raise").fit(X, y)
    assert search.best_estimator_.predict(TEXTS).shape == (18,)


def test_sample_weights_are_refused(tiny_encoder: str) -> None:
    with pytest.raises(SettingError, match="sample_weight"):
        TextClassifier("ce", tiny_encoder).fit(TEXTS, LABELS, sample_weight=np.ones(len(TEXTS)))
    with pytest.raises(TypeError, match="'unlabeled'"):
        TextClassifier("ce", tiny_encoder).fit(TEXTS, LABELS, unlabeled=POOL)
    assert not has_fit_parameter(TextClassifier(), "sample_weight")
