"""Students and cascades: accuracy, agreement with the teacher, and speed.

    python benchmarks/students.py --data FOLDER --part choose [--sets ag_news ...] [--splits 5] [--strength 0.1 0.03]
    python benchmarks/students.py --data FOLDER --part test [--students static ...] [--plan laptop] [--models FOLDER]
    python benchmarks/students.py --data FOLDER --part speed [--splits 1]
    python benchmarks/students.py --data FOLDER --part million [--texts 1000000]
    python benchmarks/students.py --data FOLDER --part startup
    python benchmarks/students.py --plot

The teacher is `lift`, by default on the frozen encoder. With `--models` it is loaded instead, from folders that
`benchmarks/accuracy.py --save` wrote for the same samples; samples without one are left out. `choose` measures on
training texts outside the sample, by cached vectors, and each scale of word vectors as well: settings are chosen by it.
`test` measures on the official test set. `speed` measures how fast all are in one run, each text predicted anew, also
against encoding by transformers as sentence-transformers does it, in fp32 and in bf16. Each cascade is made for an
agreement of 0.99. `vectors of words` is a linear model on the mean of the words' vectors alone, as in model2vec.
`million` and `startup` time the command `halflabel predict STUDENT`, on texts of AG News in which some words are
exchanged, and on one text. `--plot` only draws docs/students.svg from the results; there, SetFit and logistic
regression on vectors have their accuracy from accuracy.jsonl, and their speed, by its ratio to `halflabel predict`,
from throughput.jsonl.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix
from throughput import by_length

import cached_scores
from halflabel import TextClassifier
from halflabel.data.corpus import Corpus
from halflabel.encoders.loading import load_transformer
from halflabel.encoders.ngrams import KINDS, Kind, NgramModel, fit_linear, tf_idf_matrix
from halflabel.persistence.model import TrainedModel
from halflabel.students.cascade import Cascade
from halflabel.students.learning import (
    SCALES,
    STRENGTH,
    Examples,
    WordVectors,
    fit_features,
    fit_student,
    vectors_of_words,
)
from halflabel.students.student import Student
from halflabel.students.trial import AGREE, best_trial
from protocol import RESULTS, Results, Sample, load, sample_per_class

SETS = {"ag_news": (25, 10_000), "clinc150": (10, 9_000), "arxiv_topics10": (10, 8_000)}  # per class, unlabelled
OUTSIDE = 3000  # training texts outside the sample that settings are chosen on
TIMED = 1000  # test texts that speed is measured on
EXCHANGED = 3  # words of a text, in the million
STARTS = 10
ALONE = "vectors of words"
SVG = Path(__file__).parent.parent / "docs" / "students.svg"
Answer = Callable[[Sequence[str]], Any]


def main() -> None:
    options = parse()
    results = Results("students")
    if options.part in ("million", "startup") and not options.plot:
        time_command(options, results)
        return
    for seed in range(0 if options.plot else options.splits):
        for name in options.sets:
            per_class = options.per_class or SETS[name][0]
            key = {"set": name, "seed": seed, "part": options.part, "plan": options.plan, "per_class": per_class}
            wanted = [(strength, kind) for strength in options.strength for kind in options.students
                      if not results.has(**key, strength=strength, model=kind)]
            taught = teach(options.data, name, seed, options.plan, per_class, options.models) if wanted else None
            for line in [] if taught is None else run(options.data, name, options.part, wanted, taught):
                if not results.has(**key, model=line["model"], strength=line["strength"]):  # the teacher's may be there
                    results.add(**key, **line)
    summarise(list(results))
    if options.plot:
        plot(list(results))


class Taught(NamedTuple):
    """A sample, the teacher that was trained on it, and the teacher's probabilities of the pool, (N, K)."""

    sample: Sample
    model: TrainedModel
    p: np.ndarray


def run(data: Path, name: str, part: str, wanted: Sequence[tuple[float, Kind]], taught: Taught) -> list[dict[str, Any]]:
    """One line for the teacher, and for each student, by its penalty and kind, and its cascade."""
    sample, model, p = taught
    texts = sample.pool.texts
    test = load(data, name, "test") if part != "choose" else sample.rest.take(range(min(OUTSIDE, len(sample.rest))))
    expected = cached_scores.scores(model, test.texts).argmax(axis=1)
    truth = model.classes.matrix(test.labels).argmax(axis=1)
    shared = {"unlabelled": len(texts), "n_test": len(test)}
    lines: list[dict[str, Any]] = []
    ways: dict[str, Answer] = {"teacher": model.probabilities}
    words, examples = word_vectors(taught), labelled_answers(taught)
    for strength in dict.fromkeys(strength for strength, _ in wanted):
        lines.append(shared | {"model": "teacher", "strength": strength, "accuracy": float((expected == truth).mean())})
    for strength, kind in wanted:
        trial = best_trial(kind, model, texts, p, words if kind == "static" else None, examples, strength)
        student = trial.refitted(texts, p, examples)
        both = Cascade(trial.student, trial.agreeing_threshold(AGREE), lambda: model)
        chosen = {} if trial.words is None else {"scale": trial.words.scale}
        lines += [shared | {"strength": strength} | chosen | line
                  for line in measure(kind, student, both, test, truth, expected)]
        if part == "choose" and trial.words is not None:
            for scale in SCALES:
                one = replace(trial, words=trial.words._replace(scale=scale)).refitted(texts, p, examples)
                lines.append(shared | {"strength": strength, "model": f"{kind}, scale {scale:g}"}
                             | against(one.scores(test.texts).argmax(axis=1), truth, expected))
        if strength == STRENGTH:
            ways |= {kind: student.probabilities, f"{kind}, cascade": both.probabilities}
    if words is not None and (STRENGTH, "static") in wanted:
        alone = vectors_alone(model, texts, p, words)
        ways[ALONE], given = alone.probabilities, alone.scores(test.texts).argmax(axis=1)
        lines.append(shared | {"model": ALONE, "strength": STRENGTH} | against(given, truth, expected))
    rates = speeds(model, ways, test) if part == "speed" else {}
    for line in lines:
        if line["strength"] == STRENGTH and rates:
            line |= {"texts_per_second": rates[line["model"]]} | {
                f"times_{base}": rates[line["model"]] / rates[base] for base in ("teacher", "fp32", "bf16")}
    print(name, *lines, sep="\n", flush=True)
    return lines


def teach(data: Path, name: str, seed: int, plan: str, per_class: int, models: Path | None = None) -> Taught | None:
    """A teacher that is trained, or loaded from a folder of models; None if that does not have it."""
    sample = sample_per_class(load(data, name, "train"), per_class, SETS[name][1], seed)
    if models is not None:
        folder = models / f"{name}-{len(sample.labelled)}-{seed}-lift-{plan}"
        if not folder.is_dir():
            print(f"{folder} is not there; {name}, seed {seed}, is left out")
            return None
        model = TextClassifier.load(folder).model_
    else:
        model = TextClassifier("lift", plan=plan, random_state=seed).fit(
            sample.labelled.texts, sample.labelled.labels, sample.pool.texts).model_
    assert isinstance(model, TrainedModel)
    return Taught(sample, model, model.probabilities_of(cached_scores.scores(model.as_if_new(), sample.pool.texts)))


def word_vectors(taught: Taught) -> WordVectors:
    """The teacher's vectors of words and of the pool."""
    texts = taught.sample.pool.texts
    return WordVectors.of(taught.model, texts, cached_scores.vectors(taught.model, texts))


def labelled_answers(taught: Taught) -> Examples:
    """The teacher's probabilities of the labelled texts."""
    sample, model, _ = taught
    return Examples(sample.labelled.texts, model.probabilities_of(
        cached_scores.scores(model.as_if_new(), sample.labelled.texts)))


def vectors_alone(teacher: TrainedModel, texts: Sequence[str], p: np.ndarray, words: WordVectors) -> Student:
    """A student with no weights but those of the mean vector of a text's words."""
    features = fit_features("static", texts, len(teacher.classes), words)
    x = tf_idf_matrix(features, texts)
    vectors = vectors_of_words(features, words)
    vectors /= np.sqrt(((x @ vectors) ** 2).sum() / len(texts))
    weights, bias = fit_linear(csr_matrix((len(texts), 0), dtype=np.float32), x @ vectors, p.astype(np.float32),
                               teacher.task, STRENGTH)
    return Student(teacher.classes, teacher.task, NgramModel(features, vectors @ weights, bias))


def time_command(options: argparse.Namespace, results: Results) -> None:
    """Seconds of `halflabel predict` with a static student of AG News: for many texts, or for one in new processes."""
    taught = teach(options.data, "ag_news", 0, "frozen", SETS["ag_news"][0])
    assert taught is not None
    (_, model, p), texts = taught, taught.sample.pool.texts
    student = fit_student("static", model, texts, p, word_vectors(taught), labelled_answers(taught))
    with TemporaryDirectory() as place:
        folder, file = Path(place) / "student", Path(place) / "texts.txt"
        student.save(folder)
        number, repeats = (1, STARTS) if options.part == "startup" else (options.texts, 1)
        write_texts(file, texts, number)
        command = [sys.executable, "-m", "halflabel", "predict", str(folder), str(file), "--force", "--out"]
        seconds = []
        for _ in range(repeats):
            began = time.perf_counter()
            subprocess.run([*command, str(Path(place) / "out.jsonl")], check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - began)
    line = {"texts": number, "seconds": statistics.median(seconds), "slowest": max(seconds), "repeats": repeats}
    results.add(set="ag_news", seed=0, part=options.part, model="static", **line)
    print(options.part, line)


def write_texts(file: Path, texts: Sequence[str], number: int) -> None:
    """Texts with some words of others, one in a line."""
    rng, words = random.Random(0), [text.split() for text in texts]
    with open(file, "w", encoding="utf-8") as lines:
        for _ in range(number):
            text = list(rng.choice(words))
            for _ in range(EXCHANGED):
                text[rng.randrange(len(text))] = rng.choice(rng.choice(words))
            lines.write(" ".join(text) + "\n")


def measure(kind: str, student: Student, both: Cascade, test: Corpus, truth: np.ndarray,
            expected: np.ndarray) -> list[dict[str, Any]]:
    """Accuracy and agreement of a student alone and of a cascade, by the teacher's known answers."""
    p = both.student.probabilities(test.texts)
    sure = p.max(axis=1) >= both.threshold
    answers = {kind: (student.scores(test.texts).argmax(axis=1), 1.0),
               f"{kind}, cascade": (np.where(sure, p.argmax(axis=1), expected), float(sure.mean()))}
    return [{"model": name, **against(given, truth, expected), "answered_by_student": share}
            for name, (given, share) in answers.items()]


def against(given: np.ndarray, truth: np.ndarray, expected: np.ndarray) -> dict[str, float]:
    """How often labels are right, and how often they are the teacher's."""
    return {"accuracy": float((given == truth).mean()), "agreement": float((given == expected).mean())}


def speeds(model: TrainedModel, ways: dict[str, Answer], test: Corpus) -> dict[str, float]:
    """Texts per second of each way to answer, and of plain encoding; each is warmed up first."""
    texts = test.texts[:TIMED]
    ways = ways | {name: plain_encoding(model, dtype) for name, dtype in
                   (("fp32", torch.float32), ("bf16", torch.bfloat16))}
    rates = {}
    for name, answer in ways.items():
        answer(texts[:64])
        repeats = 1 if name in ("fp32", "bf16") else 3
        seconds = []
        for _ in range(repeats):
            began = time.perf_counter()
            answer(texts)
            seconds.append(time.perf_counter() - began)
        rates[name] = len(texts) / statistics.median(seconds)
    return rates


def plain_encoding(model: TrainedModel, dtype: torch.dtype) -> Answer:
    """transformers' encoder on batches of 32 texts of similar length, as `encode` of sentence-transformers."""
    encoder = load_transformer("minilm", model.encoder.max_tokens).eval().to(dtype)
    return by_length(encoder, lambda ids, mask: encoder(ids, mask).float())


def summarise(lines: Sequence[dict[str, Any]]) -> None:
    """Prints means over splits."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for line in lines:
        if "strength" not in line:  # a time of the command
            continue
        key = tuple(line[name] for name in ("part", "plan", "set", "per_class", "strength", "model"))
        groups.setdefault(key, []).append(line)
    for key, group in sorted(groups.items()):
        print(*key, len(group), {name: round(statistics.mean(line[name] for line in group), 4) for name in (
            "accuracy", "agreement", "answered_by_student", "times_teacher", "times_fp32", "times_bf16")
            if all(name in line for line in group)})


def plot(lines: Sequence[dict[str, Any]], name: str = "ag_news") -> None:
    """Accuracy against speed, as a multiple of the teacher's, on the test set."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "halflabel"  # the same figure gives the same file
    from matplotlib import pyplot

    points: dict[str, tuple[float, float]] = {}
    for model in dict.fromkeys(line["model"] for line in lines):
        group = [line for line in lines if line["set"] == name and line["model"] == model
                 and line.get("plan") == "frozen" and line["per_class"] == SETS[name][0]]
        times = [line["times_teacher"] for line in group if line["part"] == "speed"]
        accuracy = [line["accuracy"] for line in group if line["part"] == "test"]
        if times and accuracy:
            points["halflabel predict" if model == "teacher" else model] = (statistics.median(times),
                                                                            statistics.mean(accuracy))
    points |= others(name, SETS[name][0])
    plain = [1.0 / line["times_bf16"] for line in lines if line["set"] == name and line["part"] == "speed"
             and line["model"] == "teacher"]
    if plain and "vectors, logistic regression" in points:
        points[BF16] = (statistics.median(plain), points["vectors, logistic regression"][1])
    figure, axes = pyplot.subplots(figsize=(8.8, 3.6), layout="constrained")
    ours = [label for label in points if label not in (*OTHERS, BF16, ALONE)]
    for color, labels in (("#2f6fb0", ours), ("#9aa0a6", [label for label in points if label not in ours])):
        for marker, label in zip("osD^vP*X", sorted(labels, key=lambda label: -points[label][1]), strict=False):
            axes.scatter(*points[label], color=color, marker=marker, alpha=0.85, label=label)
    axes.set(xscale="log", xlabel="speed, in multiples of halflabel predict", ylabel=f"accuracy on {name}")
    axes.margins(0.1)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(SVG, metadata={"Date": None})


OTHERS = {"SetFit": ("setfit", "setfit"), "vectors, logistic regression": ("logreg", "sentence-transformers"),
          "vectors in ONNX, logistic regression": ("logreg", "halflabel predict, onnx")}
BF16 = "vectors in bf16, logistic regression"


def others(name: str, per_class: int) -> dict[str, tuple[float, float]]:
    """Other implementations with existing results: speed as a multiple of `halflabel predict` in its run, accuracy."""
    def read(file: str) -> list[dict[str, Any]]:
        return [line for line in map(json.loads, (RESULTS / file).read_text(encoding="utf-8").splitlines())
                if line["set"] == name]

    rates = {(line["way"], line["repeat"]): line["texts_per_second"] for line in read("throughput.jsonl")}
    found = {}
    for label, (method, way) in OTHERS.items():
        accuracy = [line["accuracy"] for line in read("accuracy.jsonl")
                    if line["method"] == method and line["per_class"] == per_class]
        ratios = [rate / rates["halflabel predict", repeat] for (one, repeat), rate in rates.items() if one == way]
        if accuracy and ratios:
            found[label] = (statistics.median(ratios), statistics.mean(accuracy))
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--part", choices=("choose", "test", "speed", "million", "startup"), default="choose")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--plan", choices=("frozen", "laptop"), default="frozen", help="of the teacher")
    parser.add_argument("--models", type=Path, help="folder of saved teachers, SET-LABELLED-SEED-lift-PLAN")
    parser.add_argument("--students", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--per-class", type=int, help="labelled texts, by default as many as the set is given here")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--texts", type=int, default=1_000_000, help="of the part million")
    parser.add_argument("--strength", nargs="+", type=float, default=[STRENGTH])
    parser.add_argument("--plot", action="store_true")
    options = parser.parse_args()
    if not options.plot and options.data is None:
        parser.error("--data is needed, unless --plot is given")
    return options


if __name__ == "__main__":
    main()
