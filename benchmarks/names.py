"""What class names add to the closed forms of `lift` and `lift-ml`, on training texts outside the sample.

    python benchmarks/names.py --data FOLDER [--sets ag_news ...] [--per-class 0 1 2 5 10 25] [--seeds 0 1 2]
    python benchmarks/names.py --data FOLDER --several [--sets arxiv54 ...] [--per-class 0 1 5 25] [--seeds 0 1 2]

Names come from `label_names` of a set's meta.json, and for arXiv's categories from its own list of subjects. `opaque`
are names that mean nothing (tag00, tag01, ...), `wrong` are the names in another order; neither may do harm. No test
text is used: the constants of names in `methods/gaussian_em.py` and `methods/closed_form_several.py`, and whether
labels that read as words are names by default, were chosen by this script.

With one label per text the figure is accuracy. With several it is micro and macro F1 of the linear model under the
decision `prior-quantile`; labelled texts are sampled at random, so many that a label has `per_class` on average.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from halflabel.atomic import cache_folder
from halflabel.bench.corpora import shuffled_rows
from halflabel.class_names import name_vectors, words_of_label
from halflabel.data.labels import Classes
from halflabel.encoders.cache import EncoderCache
from halflabel.encoders.loading import load_encoder
from halflabel.evaluation.decisions import Decision
from halflabel.evaluation.metrics import multi_label
from halflabel.methods.closed_form import fit_closed_form
from halflabel.methods.closed_form_several import fit_several_labels
from halflabel.methods.label_smoothing import word_features
from protocol import Results, Sample, load, sample_per_class

SETS = {"ag_news": 12_000, "sst5": None, "arxiv_topics10": 8000, "clinc150": None}  # training texts
SUBJECTS = {"cs.CL": "computation and language", "cs.CR": "cryptography and security",
            "cs.DC": "distributed, parallel and cluster computing", "cs.DS": "data structures and algorithms",
            "cs.LO": "logic in computer science", "cs.NI": "networking and internet architecture",
            "math.NA": "numerical analysis", "physics.flu-dyn": "fluid dynamics",
            "physics.soc-ph": "physics and society", "stat.ME": "statistics methodology"}
SEVERAL_SUBJECTS = {"cs.it": "information theory and coding", "math.it": "mathematical information theory",
    "cs.lg": "machine learning", "cs.ai": "artificial intelligence", "stat.ml": "statistical machine learning",
    "cs.ds": "data structures and algorithms", "cs.si": "social and information networks",
    "cs.dm": "discrete mathematics", "physics.soc-ph": "physics and society", "cs.lo": "logic in computer science",
    "math.co": "combinatorics", "cs.cc": "computational complexity", "math.oc": "optimization and control",
    "cs.ni": "networking and internet architecture", "cs.cv": "computer vision and pattern recognition",
    "cs.cl": "computation and language", "cs.cr": "cryptography and security", "cs.sy": "systems and control",
    "cs.dc": "distributed, parallel and cluster computing", "cs.ne": "neural and evolutionary computing",
    "cs.ir": "information retrieval", "quant-ph": "quantum physics", "cs.gt": "computer science and game theory",
    "cs.cy": "computers and society", "cs.pl": "programming languages", "cs.se": "software engineering",
    "math.pr": "probability", "cs.db": "databases", "cs.cg": "computational geometry",
    "cs.na": "numerical methods in computer science", "cs.hc": "human-computer interaction",
    "math.na": "numerical analysis", "cs.ce": "computational engineering, finance and science",
    "cs.ma": "multiagent systems", "cs.ro": "robotics", "cs.fl": "formal languages and automata theory",
    "math.st": "mathematical statistics", "stat.th": "statistics theory", "cs.dl": "digital libraries",
    "cmp-lg": "computational linguistics", "cs.mm": "multimedia", "cond-mat.stat-mech": "statistical mechanics",
    "cs.pf": "performance of computer systems", "math.lo": "mathematical logic",
    "stat.ap": "applications of statistics", "cs.ms": "mathematical software", "stat.me": "statistics methodology",
    "cs.sc": "symbolic computation", "cond-mat.dis-nn": "disordered systems and neural networks",
    "q-bio.nc": "neurons and cognition", "physics.data-an": "data analysis, statistics and probability",
    "nlin.ao": "adaptation and self-organizing systems", "q-bio.qm": "quantitative methods in biology",
    "math.nt": "number theory"}
# training texts, of these unlabelled, and tokens of a text
SEVERAL = {"arxiv54": (2048, 1150, 128), "pubmed_mesh23": (2048, 1150, 256), "goemotions": (8000, 6000, 256)}
MAX_TOKENS = 128
PER_CLASS, SEVERAL_PER_CLASS = (0, 1, 2, 5, 10, 25), (0, 1, 5, 25)
CODE = re.compile(r"^C\d\d ")  # of a MeSH category
KINDS = ("none", "names", "opaque", "wrong")
HELD_OUT = 2000  # texts outside the sample that are predicted


def main() -> None:
    options = parse()
    if options.several:
        for name in options.sets or SEVERAL:
            compare_several(name, options)
    else:
        compare_one(options)


def compare_one(options: argparse.Namespace) -> None:
    """All sets with one label per text."""
    results, encoder = Results("names"), load_encoder("minilm", MAX_TOKENS).eval()
    for name in options.sets or SETS:
        train = load(options.data, name, "train", SETS[name])
        labels = json.loads((options.data / name / "meta.json").read_text(encoding="utf-8"))["label_names"]
        meant = name_vectors(encoder, [[SUBJECTS.get(label) or words_of_label(label) or label] for label in labels])
        kinds = {"none": None, "names": meant, "wrong": np.roll(meant, 1, axis=0),
                 "opaque": name_vectors(encoder, [[f"tag{i:02d}"] for i in range(len(labels))])}
        x = EncoderCache(cache_folder(), encoder).vectors(train.texts).astype(np.float64)
        vector_of = dict(zip(train.texts, x / np.linalg.norm(x, axis=1, keepdims=True), strict=True))
        for seed, per_class in product(options.seeds, options.per_class or PER_CLASS):
            for kind in options.kinds:
                key = {"set": name, "per_class": per_class, "seed": seed, "unlabelled": options.unlabelled,
                       "names": kind}
                if (per_class or kind == "names") and not results.has(**key):
                    split = sample_per_class(train, per_class, options.unlabelled, seed)
                    line = accuracy(split, vector_of, kinds[kind], len(labels), seed)
                    results.add(**key, **line)
                    print(key, line, flush=True)


def accuracy(split: Sample, vector_of: Mapping[str, np.ndarray], names: np.ndarray | None, labels: int,
             seed: int) -> dict[str, Any]:
    """Accuracy of the closed form on texts outside the sample, and what it used."""
    rest = split.rest.take(range(min(HELD_OUT, len(split.rest))))
    y, truth = (np.array(part.labels, dtype=np.int64) for part in (split.labelled, rest))
    x, pool, test = (np.array([vector_of[text] for text in part.texts]) for part in (split.labelled, split.pool, rest))
    words = word_features([*split.labelled.texts, *split.pool.texts])
    fitted = fit_closed_form(x.reshape(-1, pool.shape[1]), y, pool, words, labels, seed=seed, names=names)
    correct = fitted.model.log_probabilities(test).argmax(axis=1) == truth
    return {"accuracy": round(float(correct.mean()), 4), "n_test": len(rest), "uses_names": bool(fitted.uses_names),
            "trust": round(fitted.trust, 4)}


def compare_several(name: str, options: argparse.Namespace) -> None:
    """One set with several labels per text."""
    number, unlabelled, max_tokens = SEVERAL[name]
    results, encoder = Results("names-several"), load_encoder("minilm", max_tokens).eval()
    train = load(options.data, name, "train", number)
    labels = several_names(options.data, name)
    meant = name_vectors(encoder, [[phrase] for phrase in labels.values()])
    kinds = {"none": None, "names": meant, "wrong": np.roll(meant, 1, axis=0),
             "opaque": name_vectors(encoder, [[f"tag{i:02d}"] for i in range(len(labels))])}
    y = Classes(tuple(range(len(labels)))).matrix(train.labels)
    x = EncoderCache(cache_folder(), encoder).vectors(train.texts).astype(np.float64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    for seed, per_class in product(options.seeds, options.per_class or SEVERAL_PER_CLASS):
        labelled = round(per_class * len(labels) / y.sum(axis=1).mean())
        rows = np.array(shuffled_rows(train, seed))
        parts = np.split(rows, [labelled, labelled + unlabelled, labelled + unlabelled + HELD_OUT])[:3]
        todo = {kind: key for kind in options.kinds if (per_class or kind == "names") and not results.has(
            **(key := {"set": name, "per_class": per_class, "seed": seed, "labelled": labelled,
                       "unlabelled": unlabelled, "names": kind}))}
        words = word_features([train.texts[i] for i in np.concatenate(parts[:2])]) if todo else None
        for kind, key in todo.items():
            line = f1(*parts, x=x, y=y, words=words, names=kinds[kind], seed=seed)
            results.add(**key, **line)
            print(key, line, flush=True)


def several_names(data: Path, name: str) -> dict[str, str]:
    """What the labels of a set with several labels per text mean in words, by their columns."""
    labels = json.loads((data / name / "meta.json").read_text(encoding="utf-8"))["label_names"]
    return {str(k): SEVERAL_SUBJECTS.get(label) or CODE.sub("", label) for k, label in enumerate(labels)}


def f1(labelled: np.ndarray, pool: np.ndarray, rest: np.ndarray, *, x: np.ndarray, y: np.ndarray, words: Any,
       names: np.ndarray | None, seed: int) -> dict[str, Any]:
    """Micro and macro F1 of the closed form for several labels on texts outside the sample, and what it used."""
    fitted = fit_several_labels(x[labelled], y[labelled], x[pool], words, seed=seed, names=names)
    frequencies = y[labelled].mean(axis=0) if fitted.names is None else fitted.names.prior
    decide = Decision.fit(fitted.model.logits(x[pool]), frequencies, source="pool", logits=True, slope=1.0,
                          chosen="prior-quantile")
    scores = fitted.model.logits(x[rest])
    metrics = multi_label(y[rest] > 0, decide(scores), scores, range(y.shape[1]))
    slopes = None if fitted.names is None else np.round(fitted.names.slopes, 2).tolist()
    return {"micro_f1": round(metrics["micro_f1"], 4), "macro_f1": round(metrics["macro_f1"], 4), "n_test": len(rest),
            "uses_names": fitted.names is not None, "slopes": slopes}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--several", action="store_true", help="sets with several labels per text")
    parser.add_argument("--sets", nargs="+", choices=[*SETS, *SEVERAL])
    parser.add_argument("--per-class", type=int, nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--unlabelled", type=int, default=6000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
