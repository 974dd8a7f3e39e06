"""Students and cascades: they imitate their teacher, need no torch, and refuse what cannot work."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cli_runner import Ran, runner, write_csv, write_jsonl
from conftest import tiny_texts
from halflabel import TextClassifier
from halflabel.data.corpus import Corpus
from halflabel.encoders.ngrams import BUCKETS, PART_LENGTHS, NgramModel, TfIdf, fit_linear, occurrences, tf_idf_matrix
from halflabel.errors import DataError, ModelError, SettingError
from halflabel.integrity import fingerprint, write_checksums
from halflabel.persistence.model import TrainedModel, load
from halflabel.serve.batching import ServedModel
from halflabel.students.cascade import Cascade, open_student
from halflabel.students.cross_fitting import folds, intervals
from halflabel.students.distillation import distill
from halflabel.students.learning import (
    RIDGE,
    SCALES,
    Examples,
    WordVectors,
    fit_features,
    fit_student,
    naive_bayes,
    vectors_of,
    vectors_of_words,
)
from halflabel.students.student import Student, load_student, most_probable
from halflabel.students.trial import (
    StudentCalibration,
    Trial,
    agreeing_threshold,
    agreement,
    best_trial,
    fit_and_try,
    least_like,
)

POOL = tiny_texts(60, seed=1)[0]
NEW, NEW_LABELS = tiny_texts(10, seed=9)
NONE = Examples([], np.empty((0, 3)))
UNCHANGED = StudentCalibration(np.float32(1.0), None, 0.0)


@pytest.fixture(scope="module")
def model(tiny_encoder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("distilled") / "model"
    settings = {"epochs": 2, "epoch_steps": 8, "warmup": 100}
    TextClassifier("ce", tiny_encoder, "frozen", settings=settings).fit(*tiny_texts(20)).save(folder)
    return folder


@pytest.fixture(scope="module")
def student(model: Path) -> Student:
    return TextClassifier.load(model).distill(POOL, student="static")


@pytest.fixture(scope="module")
def small(model: Path, student: Student) -> Path:
    folder = model.parent / "small"
    student.save(folder)
    return folder


@pytest.fixture(scope="module")
def both(model: Path, student: Student) -> Path:
    """A cascade in which each of the two answers some of the texts."""
    folder = model.parent / "both"
    threshold = float(np.median(student.probabilities(NEW).max(axis=1)))
    Cascade(replace(student, threshold=threshold), threshold, lambda: load(model)).save(folder)
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ran:
    return runner(capsys, monkeypatch)


def corpus(texts: list[str]) -> Corpus:
    return Corpus(texts, [None] * len(texts), source="pool.csv")


def test_a_student_gives_the_labels_of_its_teacher(model: Path, student: Student) -> None:
    same = np.mean(np.array(student.predict(NEW)) == TextClassifier.load(model).predict(NEW))
    assert same >= 0.8 and student.report["agreement"] >= 0.8
    assert student.report["held_out"] == 36 and student.report["speed_up"] > 1
    p = student.probabilities(NEW)
    assert p.shape == (30, 3) and np.allclose(p.sum(axis=1), 1.0)
    assert student.probabilities(["", "?"]).shape == (2, 3) and student.scores([]).shape == (0, 3)


def test_a_static_student_knows_the_words_of_the_encoder(model: Path) -> None:
    pool = [text.replace("goal", "match") for text in POOL]
    static, words = (TextClassifier.load(model).distill(pool, student=kind) for kind in ("static", "words"))
    (new,) = occurrences(["goal"], "words").buckets
    assert words.features.feature_of[new] < 0 <= static.features.feature_of[new]
    assert np.abs(static.scores(["goal"]) - static.linear.bias).max() > 0.01 and words.report["agreement"] >= 0.8
    assert np.allclose(words.scores(["goal"]), words.linear.bias)


@pytest.mark.parametrize("best", SCALES)
def test_the_scale_of_vectors_with_likelier_answers_is_kept(model: Path, monkeypatch: pytest.MonkeyPatch,
                                                            best: float) -> None:
    def worse(*args: Any) -> Trial:
        trial = fit_and_try(*args)
        assert trial.words is not None
        loss = trial.calibration.loss + (trial.words.scale != best)
        return replace(trial, calibration=replace(trial.calibration, loss=loss))

    monkeypatch.setattr("halflabel.students.trial.fit_and_try", worse)
    teacher = load(model)
    words = WordVectors.of(teacher, POOL, teacher.vectors(POOL))
    trial = best_trial("static", teacher, POOL, teacher.probabilities(POOL), words, NONE)
    assert trial.words is not None and trial.words.scale == best and 0.0 < trial.calibration.loss < 1.0
    assert trial.refitted(POOL, teacher.probabilities(POOL), NONE).features.kind == "static"


def test_a_student_learns_from_the_labelled_texts_too(tiny_encoder: str, tmp_path: Path, run: Ran) -> None:
    texts, labels = tiny_texts(20)
    rare = [f"{text} zanzibar quagga" for text in texts]  # words that no text of the pool has
    clf = TextClassifier("ce", tiny_encoder, "frozen", settings={"epochs": 1, "epoch_steps": 4, "warmup": 100})
    student = clf.fit(rare, labels, POOL).distill(POOL, student="words")
    (bucket,) = occurrences(["quagga"], "words").buckets
    assert student.report["labelled"] == 60 and student.features.feature_of[bucket] >= 0
    assert Examples.of(clf.model_, [*rare, POOL[0]], POOL).texts == rare  # a text of the pool may be held out
    write_csv(tmp_path / "labelled.csv", rare, labels)
    write_csv(tmp_path / "pool.csv", POOL)
    assert run("train", tmp_path / "labelled.csv", "--method", "ce", "--encoder", tiny_encoder, "--plan", "frozen",
               "--set", "epochs=1", "--set", "epoch_steps=4", "--set", "warmup=100", "--out", tmp_path / "model"
               ).code == 0
    for name, number in (("kept", 60), ("removed", 0)):
        done = run("distill", tmp_path / "model", "--unlabelled", tmp_path / "pool.csv", "--out", tmp_path / name,
                   "--json")
        assert done.code == 0 and json.loads(done.out)["labelled"] == number, done
        (tmp_path / "model" / "labelled.jsonl").unlink(missing_ok=True)
        write_checksums(tmp_path / "model")


def test_characters_beside_words_are_scaled_by_themselves(student: Student) -> None:
    x = student.features(POOL)
    part = student.features.buckets[x.features] // BUCKETS
    rows = np.repeat(np.arange(len(POOL)), np.diff(x.bounds))
    for number, length in enumerate(PART_LENGTHS):
        lengths = np.bincount(rows[part == number], x.values[part == number] ** 2)
        assert np.allclose(lengths[lengths > 0], length**2, atol=1e-5) and (lengths > 0).any()


def test_a_static_student_of_an_older_version_predicts_as_ever(student: Student, small: Path, tmp_path: Path) -> None:
    words = student.features.buckets < BUCKETS
    features = TfIdf("static", student.features.buckets[words], student.features.idf[words])
    old = NgramModel(features, student.linear.weights[words], student.linear.bias).as_stored()
    replace(student, linear=old).save(tmp_path / "old")
    facts = json.loads((tmp_path / "old" / "student.json").read_text())
    (tmp_path / "old" / "student.json").write_text(json.dumps(facts | {"format": 1}))
    write_checksums(tmp_path / "old")
    as_words = replace(old, features=TfIdf("words", features.buckets, features.idf))
    assert np.allclose(load_student(tmp_path / "old").scores(NEW), as_words.logits(NEW), atol=1e-5)


def test_weights_of_vectors_become_those_of_the_n_grams(model: Path) -> None:
    teacher = load(model)
    p, words = teacher.probabilities(POOL), WordVectors.of(teacher, POOL, teacher.vectors(POOL))
    assert np.allclose(words.vectors.mean(axis=0), 0.0, atol=1e-4)
    words = words._replace(scale=0.3)
    fitted = fit_student("static", teacher, POOL, p, words, NONE)
    x = tf_idf_matrix(fitted.features, POOL)
    vectors, sums = vectors_of(fitted.features, words, x)
    assert np.sqrt((sums**2).sum(axis=1).mean()) == pytest.approx(0.3, rel=1e-3)
    p = p.astype(np.float32)
    offset = x @ naive_bayes(x, p)
    weights, bias = fit_linear(x, sums, p, "multi-class", 0.03, offset=offset)
    expected = offset + x @ weights[: x.shape[1]] + x @ vectors @ weights[x.shape[1] :] + bias
    assert np.allclose(fitted.scores(POOL), expected, atol=1e-2)  # what the optimizer leaves open


def test_only_short_texts_have_phrases(model: Path) -> None:
    teacher = load(model)
    long = [" ".join(POOL[i : i + 5]) for i in range(0, len(POOL) - 5, 5)]
    last = [fit_features("static", texts, len(teacher.classes)).buckets[-1] // BUCKETS for texts in (POOL, long)]
    assert last == [2, 1]


def test_weights_are_drawn_to_those_of_naive_bayes(model: Path) -> None:
    teacher = load(model)
    p = teacher.probabilities(POOL)
    drawn = fit_student("words", teacher, POOL, p, None, NONE, strength=1e6)
    assert (drawn.scores(NEW).argmax(axis=1) == teacher.probabilities(NEW).argmax(axis=1)).mean() > 0.7
    never = np.zeros_like(p)
    never[:, 0] = 1.0
    assert np.isfinite(fit_student("words", teacher, POOL, never, None, NONE).linear.weights).all()


def test_naive_bayes_counts_less_with_few_texts_per_class(model: Path) -> None:
    from scipy.sparse import vstack

    p = load(model).probabilities(POOL).astype(np.float32)
    x = tf_idf_matrix(fit_features("words", POOL, p.shape[1]), POOL)
    few, many = naive_bayes(x, p), naive_bayes(vstack([x] * 20), np.tile(p, (20, 1)))
    assert np.linalg.norm(many) > 3 * np.linalg.norm(few) > 0.0


def test_a_model_of_words_has_a_student_without_vectors() -> None:
    texts, labels = tiny_texts(20)
    teacher = TextClassifier("nb-em").fit(texts, labels, POOL).model_
    assert isinstance(teacher, TrainedModel)
    student = distill(teacher, Corpus(POOL, [None] * len(POOL)))
    assert student.report["agreement"] > 0.8 and student.features.kind == "static"


def test_vectors_of_n_grams_bring_texts_near_to_the_teachers_vectors(model: Path) -> None:
    """They minimise ||X V - H||^2 + lambda ||V - a V_0||^2, up to their scale."""
    teacher = load(model)
    words = WordVectors.of(teacher, POOL, teacher.vectors(POOL))
    features = fit_features("static", POOL, len(teacher.classes), words)
    x = tf_idf_matrix(features, POOL)
    first, (found, left_out) = vectors_of_words(features, words), vectors_of(features, words, x)
    sums = x @ first - (x @ first).mean(axis=0)
    a = (sums * words.texts).sum() / (sums**2).sum()
    dense = x.toarray().astype(np.float64)
    change = np.linalg.solve(dense.T @ dense + RIDGE * np.eye(x.shape[1]), dense.T @ (words.texts - a * sums))
    expected = a * first + change
    scale = np.sqrt((found**2).sum() / (expected**2).sum())
    assert np.allclose(found, scale * expected, atol=1e-3)
    others, target = np.delete(dense, 7, axis=0), np.delete(words.texts - a * sums, 7, axis=0)
    without = a * first + np.linalg.solve(others.T @ others + RIDGE * np.eye(x.shape[1]), others.T @ target)
    assert np.allclose(left_out[7], scale * dense[7] @ without, atol=1e-3)
    assert not np.allclose(left_out[7], dense[7] @ found, atol=1e-2)

    def error(vectors: np.ndarray) -> float:
        own = x @ vectors
        own -= own.mean(axis=0)
        own *= (own * words.texts).sum() / (own**2).sum()
        return float(((own - words.texts) ** 2).sum())

    assert error(found) < 0.8 * error(first)


def test_a_saved_student_predicts_the_same(student: Student, small: Path) -> None:
    saved = load_student(small)
    assert saved.predict(NEW) == student.predict(NEW) and saved.report == student.report
    assert np.allclose(saved.probabilities(NEW), student.probabilities(NEW), atol=2e-3)  # float16
    assert sorted(file.name for file in small.iterdir()) == ["checksums.json", "student.json", "student.safetensors"]


def test_predictions_do_not_depend_on_the_number_of_texts_or_labels_at_a_time(
        student: Student, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["", *NEW, "?"]
    scores = student.scores(texts)
    monkeypatch.setattr("halflabel.encoders.ngrams.GATHERED", 12)
    assert np.allclose(student.scores(texts), scores, atol=1e-5)
    assert np.allclose([student.scores([text])[0] for text in texts], scores, atol=1e-5)


def test_predicting_imports_neither_torch_nor_scipy_and_evaluating_no_torch(small: Path, tmp_path: Path) -> None:
    write_csv(tmp_path / "new.csv", NEW, NEW_LABELS)
    code = ("import sys\nfrom halflabel.cli import main\n"
            "for command, heavy in (('predict', {'torch', 'transformers', 'sklearn', 'scipy', 'pandas'}),\n"
            "                       ('evaluate', {'torch', 'transformers'})):\n"
            f"    sys.argv = ['halflabel', command, {str(small)!r}, {str(tmp_path / 'new.csv')!r}]\n"
            "    try:\n        main()\n    except SystemExit as end:\n        assert not end.code\n"
            "    assert not heavy & set(sys.modules), heavy & set(sys.modules)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count('"label"') == 30 and "accuracy" in done.stdout


def test_several_labels(tiny_encoder: str, tmp_path: Path, run: Ran) -> None:
    texts, labels = tiny_texts(20)
    sets = [(label, "long") if len(text) > 50 else (label,) for text, label in zip(texts, labels, strict=True)]
    pool = tiny_texts(150, seed=1)[0]
    clf = TextClassifier("bce", tiny_encoder, "frozen", settings={"epochs": 2, "epoch_steps": 8, "warmup": 300})
    fitted = clf.fit(texts, sets, pool).distill(pool)
    assert fitted.report["micro_f1"] > 0.7 and fitted.rules.chosen == clf.decision_.chosen == "fixed"
    given, expected = fitted.rules(fitted.scores(pool)), clf.decision_(clf.model_.scores(pool))
    assert np.abs(given.mean(axis=0) - expected.mean(axis=0)).max() < 0.1
    fitted.save(tmp_path / "small")
    assert load_student(tmp_path / "small").predict(NEW) == fitted.predict(NEW)
    rows = [{"text": text, "label": list(one)} for text, one in zip(texts, sets, strict=True)]
    write_jsonl(tmp_path / "test.jsonl", rows)
    figures = json.loads(run("evaluate", tmp_path / "small", tmp_path / "test.jsonl", "--json").out)
    right = [set(one) == set(true) for one, true in zip(fitted.predict(texts), sets, strict=True)]
    assert figures["accuracy"] == pytest.approx(np.mean(right)) and figures["decision"] == "fixed"
    assert json.loads(run("info", tmp_path / "small", "--json").out)["decisions"] == list(fitted.rules.rules)
    both = clf.distill(pool, student="words", cascade=True, agree=0.95)
    p, by_student = both.answers(texts)
    assert 0 < by_student.sum() < len(texts) and both.report["cascade"]["agreement"] >= 0.95
    own = clf.model_.probabilities(texts)
    assert np.allclose(p[~by_student], own[~by_student], atol=1e-5)
    expected = [one if sure else two for one, two, sure in
                zip(both.student.predict(texts), clf.predict(texts), by_student, strict=True)]
    assert both.predict(texts) == expected
    both.save(tmp_path / "both")
    rows = [json.loads(line) for line in run("predict", tmp_path / "both", tmp_path / "test.jsonl").out.splitlines()]
    assert [set(row["labels"]) for row in rows] == [set(one) for one in expected]
    assert [row["answered_by"] == "student" for row in rows] == by_student.tolist()
    figures = json.loads(run("evaluate", tmp_path / "both", tmp_path / "test.jsonl", "--json").out)
    right = [set(one) == set(true) for one, true in zip(expected, sets, strict=True)]
    assert figures["accuracy"] == pytest.approx(np.mean(right))


def test_the_threshold_keeps_the_agreement() -> None:
    sure, same = np.repeat([0.9, 0.8, 0.7, 0.6], 10), np.ones(40, bool)
    assert agreeing_threshold(sure, same, 0.94) == 0.6  # 1 - 0.1^(1/40) is 0.056
    same[[25, 35]] = False
    assert agreeing_threshold(sure, same, 0.94) == 0.8
    assert agreeing_threshold(sure, same, 0.9) == 0.7
    assert agreeing_threshold(sure, same, 0.87) == 0.6
    for wrong in (same, np.zeros(40, bool)):
        with pytest.raises(DataError, match="never sure enough"):
            agreeing_threshold(sure, wrong, 0.95)


def test_the_threshold_holds_for_texts_least_like_the_learned_ones(model: Path, student: Student) -> None:
    f = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]], np.float32)
    assert least_like(f, np.array([[2.0, 0.0], [3.0, 0.1]], np.float32)).tolist() == [False, True, False, True]
    sure, labels = np.tile([0.9, 0.8], 40), np.ones((80, 1), bool)
    given, unlike = labels.copy(), np.arange(80) < 40
    given[1:9:2] = False  # among the first, 4 of 20 at the lower confidence
    trial = Trial(student, UNCHANGED, load(model), NEW, sure, given, labels)
    assert trial.agreeing_threshold(0.9) == 0.8
    assert replace(trial, unlike=unlike).agreeing_threshold(0.9) == 0.9


def test_nine_of_ten_cascades_agree_as_often_as_they_promise() -> None:
    rng = np.random.default_rng(0)
    reached = []
    for _ in range(1000):
        sure = rng.uniform(size=200)
        threshold = agreeing_threshold(sure, rng.uniform(size=200) < sure, 0.9)
        reached.append(1.0 - (1.0 - threshold) ** 2 / 2)  # the agreement on endless texts
    assert 0.88 < np.mean(np.array(reached) >= 0.9) < 0.95 and np.mean(reached) < 0.94


def test_a_student_no_better_than_the_most_frequent_label_is_refused(model: Path, student: Student) -> None:
    expected = most_probable(np.array([[1.0, 0.0]] * 9 + [[0.0, 1.0]]))
    trial = Trial(student, UNCHANGED, load(model), NEW[:10], np.ones(10), expected, expected)
    assert agreement(trial, "pool") == {"agreement": 1.0}
    always = most_probable(np.array([[1.0, 0.0]] * 10))
    with pytest.raises(DataError, match="pool: .* only to 90%.* nothing is written"):
        agreement(replace(trial, given=always), "pool")
    with pytest.raises(DataError, match="pool: the model gives all held-out texts the same label"):
        agreement(replace(trial, given=always, expected=always), "pool")


def test_the_threshold_reaches_a_speed(model: Path, student: Student) -> None:
    sure = np.array([0.9, 0.8, 0.7, 0.6])
    labels = most_probable(np.eye(4))
    trial = Trial(student, UNCHANGED, load(model), ["a" * 10] * 4, sure, labels, labels)
    assert [trial.fast_threshold(speed_up, 1000.0) for speed_up in (1.2, 1.9, 3.5, 900.0)] == [0.9, 0.8, 0.7, 0.6]
    assert replace(trial, texts=["a", "a", "a" * 40, "a"]).fast_threshold(1.9, 1000.0) == 0.7  # length is time
    with pytest.raises(SettingError, match="the student alone is 5.0 times as fast"):
        trial.fast_threshold(6.0, 5.0)


def test_each_text_of_a_cascade_is_answered_by_the_one_or_the_other(both: Path, model: Path) -> None:
    cascade, teacher = open_student(both), load(model)
    assert isinstance(cascade, Cascade)
    p, by_student = cascade.answers(NEW)
    assert 0 < by_student.sum() < 30
    assert np.allclose(p[by_student], cascade.student.probabilities(NEW)[by_student])
    assert np.allclose(p[~by_student], teacher.probabilities(NEW)[~by_student], atol=1e-3)


def test_the_commands(model: Path, tmp_path: Path, run: Ran) -> None:
    write_csv(tmp_path / "pool.csv", POOL)
    write_csv(tmp_path / "new.csv", NEW, NEW_LABELS)
    done = run("distill", model, "--unlabelled", tmp_path / "pool.csv", "--out", tmp_path / "both", "--cascade",
               "--agree", 0.85, "--labelled", tmp_path / "new.csv", "--json")
    report = json.loads(done.out)
    assert done.code == 0 and report["accuracy"]["texts"] == 30 and report["accuracy"]["student"][0] > 0.6
    assert report["cascade"]["agree"] == 0.85 and report["cascade"]["agreement"] >= 0.85
    predicted = run("predict", tmp_path / "both", tmp_path / "new.csv", "--all").out
    rows = [json.loads(line) for line in predicted.splitlines()]
    assert [row["text"] for row in rows] == NEW and {row["answered_by"] for row in rows} <= {"student", "teacher"}
    assert list(rows[0]) == ["text", "label", "score", "probabilities", "answered_by"]
    right = np.mean([row["label"] == label for row, label in zip(rows, NEW_LABELS, strict=True)])
    figures = json.loads(run("evaluate", tmp_path / "both", tmp_path / "new.csv", "--json").out)
    assert figures["accuracy"] == pytest.approx(right)
    facts = json.loads(run("info", tmp_path / "both", "--json").out)
    assert facts["report"]["cascade"]["agree"] == 0.85 and facts["teacher"]["method"] == "ce"
    assert facts["kind"] == "cascade"
    shown = run("info", tmp_path / "both").out
    assert "the student answers" in shown and "ce, frozen" in shown
    done = run("distill", model, "--unlabelled", tmp_path / "pool.csv", "--out", tmp_path / "small")
    assert done.code == 0 and "held-out texts get the model's labels" in done.out
    assert "answered_by" not in run("predict", tmp_path / "small", tmp_path / "new.csv").out


def test_accuracy_is_cross_fitted_if_the_teacher_was_trained_on_the_texts(tiny_encoder: str) -> None:
    settings = {"epochs": 1, "epoch_steps": 4, "warmup": 100}
    clf = TextClassifier("ce", tiny_encoder, "frozen", settings=settings).fit(*tiny_texts(5), POOL)
    report = clf.distill(POOL, cascade=True, agree=0.5, labelled=tiny_texts(5)).report["accuracy"]
    assert report["measured_by"] == "cross-fitting" and report["texts"] == 15
    for name in ("student", "teacher", "cascade"):
        share, low, high = report[name]
        assert 0.4 < share <= 1.0 and 0.0 <= low < share <= high + 1e-9
    report = clf.distill(POOL, labelled=(NEW, NEW_LABELS)).report["accuracy"]
    assert report["measured_by"] == "new texts" and report["texts"] == 30 and "cascade" not in report


def test_folds_have_equally_many_of_each_label() -> None:
    labels = ["a"] * 10 + ["b"] * 3 + ["c"]
    parts = folds(labels, seed=0)
    assert sorted(row for part in parts for row in part) == list(range(13))  # the only text of c is always trained on
    assert [sum(row < 10 for row in part) for part in parts] == [2] * 5
    assert sorted(sum(row >= 10 for row in part) for part in parts) == [0, 0, 1, 1, 1]


def test_the_interval_is_wilsons() -> None:
    share, low, high = intervals({"teacher": np.array([True] * 8 + [False] * 2)})["teacher"]
    assert (share, round(low, 4), round(high, 4)) == (0.8, 0.4902, 0.9433)


def test_the_identity_of_a_cascade_includes_its_teacher(both: Path, tmp_path: Path) -> None:
    shutil.copytree(both, tmp_path / "copy")
    assert fingerprint(tmp_path / "copy") == fingerprint(both)
    config = tmp_path / "copy" / "teacher" / "config.json"
    config.write_text(config.read_text() + " ")
    write_checksums(tmp_path / "copy" / "teacher")
    assert fingerprint(tmp_path / "copy") != fingerprint(both)
    (tmp_path / "copy" / "teacher" / "checksums.json").unlink()
    (tmp_path / "copy" / "checksums.json").unlink()
    assert fingerprint(tmp_path / "copy") != fingerprint(both)


def test_cascades_are_served(both: Path) -> None:
    cascade = open_student(both)
    served = ServedModel("both", cascade).predict(NEW, raw=False)
    assert served.chosen.argmax(axis=1).tolist() == cascade.probabilities(NEW).argmax(axis=1).tolist()


def test_a_student_cannot_be_exported_or_be_a_classifier(small: Path, tmp_path: Path, run: Ran) -> None:
    with pytest.raises(ModelError, match="open it with halflabel.students.cascade.open_student"):
        TextClassifier.load(small)
    done = run("export", small, "--onnx", tmp_path / "out")
    assert done.code == 2 and "is a distilled model, and only a trained one can be exported" in done.err


def test_shards_of_a_student(small: Path, tmp_path: Path, run: Ran) -> None:
    write_csv(tmp_path / "new.csv", NEW)
    assert run("predict", small, tmp_path / "new.csv", "--out", tmp_path / "parts", "--shard", 20).code == 0
    assert len(list((tmp_path / "parts").glob("part-*.jsonl"))) == 2


def test_bad_input_is_one_sentence_and_nothing_is_written(model: Path, small: Path, tmp_path: Path, run: Ran) -> None:
    write_csv(tmp_path / "pool.csv", POOL)
    write_csv(tmp_path / "empty.csv", ["", " "])
    write_csv(tmp_path / "other.csv", [f"wort{i % 40} satz{i % 37} ding{i % 41}" for i in range(300)])
    out = tmp_path / "out"
    pool, to = ("--unlabelled", tmp_path / "pool.csv"), ("--out", out)
    cases = {
        (model, *to): "needs unlabelled texts",
        (model, "--unlabelled", tmp_path / "empty.csv", *to): "too few",
        (model, "--unlabelled", tmp_path / "missing.csv", *to): "missing.csv",
        (model, "--unlabelled", tmp_path / "other.csv", *to): "nothing is written",
        (model, *pool, *to, "--student", "neural"): "choose one of static, words, characters",
        (model, *pool, *to, "--agree", "0.9"): "--agree is for a cascade; give --cascade",
        (model, *pool, *to, "--speed-up", "3"): "--speed-up is for a cascade; give --cascade",
        (model, *pool, *to, "--cascade", "--speed-up", "3", "--agree", "0.9"): "give one of them",
        (model, *pool, *to, "--cascade", "--speed-up", "1"): "not faster",
        (model, *pool, *to, "--cascade", "--speed-up", "1e9"): "lower --speed-up",
        (model, *pool, *to, "--cascade", "--agree", "99"): "not a share",
        (model, *pool, *to, "--cascade"): "never sure enough",
        (model, *pool, "--out", small): "exists already",
        (small, *pool, *to): "a distilled model",
        (tmp_path, *pool, *to): "no halflabel model",
    }
    for arguments, words in cases.items():
        done = run("distill", *arguments)
        assert done.code == 2 and words in done.err and done.lines == 1, done
        assert not out.exists() and not list(tmp_path.glob(".*"))


def test_an_export_is_no_teacher(tmp_path: Path, run: Ran) -> None:
    (tmp_path / "export.json").write_text("{}")
    write_csv(tmp_path / "pool.csv", POOL)
    done = run("distill", tmp_path, "--unlabelled", tmp_path / "pool.csv", "--out", tmp_path / "out")
    assert done.code == 2 and "an exported model" in done.err


def test_a_cascade_without_its_teacher_is_refused(both: Path, tmp_path: Path, run: Ran) -> None:
    copy = tmp_path / "copy"
    for name, words in (("", "the teacher of this cascade, is missing"), ("model.safetensors", "without a model"),
                        ("encoder.safetensors", "encoder.safetensors is missing")):
        shutil.copytree(both, copy)
        broken = copy / "teacher" / name
        shutil.rmtree(broken) if broken.is_dir() else broken.unlink()
        done = run("predict", copy, stdin="goal match\n")
        assert done.code == 2 and words in done.err and done.out == "", done
        shutil.rmtree(copy)


def test_damaged_files_are_refused(small: Path, tmp_path: Path, run: Ran) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small, copy)
    (copy / "student.safetensors").write_bytes((small / "student.safetensors").read_bytes()[:-8])
    done = run("predict", copy, stdin="goal match\n")
    assert done.code == 2 and "student.safetensors is damaged" in done.err and done.lines == 1
    (copy / "checksums.json").unlink()  # what is left is the validation of the content
    assert "student.safetensors is damaged" in run("predict", copy, stdin="goal\n").err
    tensors = load_file(small / "student.safetensors")
    changes = {"bias": tensors["bias"][:2], "buckets": tensors["buckets"][::-1].copy(),
               "weights": np.full_like(tensors["weights"], np.nan), "idf": tensors["idf"].astype(np.float64)}
    for name, value in changes.items():
        save_file(tensors | {name: value}, copy / "student.safetensors")
        with pytest.raises(ModelError, match=r"copy or distill the model again\.$"):
            load_student(copy)
    shutil.copy(small / "student.safetensors", copy)
    facts = json.loads((small / "student.json").read_text())
    for name, value in (("format", 99), ("bits", 8), ("student", "neural"), ("threshold", "high"), ("classes", [])):
        (copy / "student.json").write_text(json.dumps(facts | {name: value}))
        with pytest.raises(ModelError, match=r"student\.json"):
            load_student(copy)
    (copy / "student.json").write_text(json.dumps(facts))
    write_checksums(copy)
    assert load_student(copy).classes.names == ("food", "money", "sport")


def test_options_that_a_student_does_not_have(small: Path, run: Ran) -> None:
    assert "leave out --backend" in run("predict", small, "--backend", "onnx", stdin="goal\n").err
    assert "leave out the decision" in run("predict", small, "--decision", "fixed", stdin="goal\n").err


def test_a_pool_that_shares_no_words(model: Path) -> None:
    with pytest.raises(DataError, match="no word occurs in two texts"):
        distill(load(model), corpus([f"w{i}" for i in range(40)]))
