"""What an encoder is worth: accuracy of `lift` on its frozen vectors, and how many texts it encodes in a second.

    python benchmarks/encoders.py --data FOLDER --encoders minilm gte-small=FOLDER mpnet=FOLDER minilm+gte-small
                                  [--sets ag_news ...] [--per-class 10] [--seeds 0 1 2] [--unlabelled 4000]
                                  [--held-out 2000] [--speed]

An encoder is a name of `halflabel encoders`, a name with the folder that holds it, or names joined by a plus. Accuracy
is that on training texts outside the sample; no test text is used. Only accuracies of the same sample are comparable.
`--speed` times the encoders instead, in turns.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from halflabel.classifier import TextClassifier
from halflabel.encoders.loading import load_encoder, texts_per_second
from halflabel.fitting import vector_cache
from halflabel.persistence.model import TrainedModel
from protocol import Results, Sample, load, sample_per_class

SETS = {"ag_news": 12_000, "sst5": None, "arxiv_topics10": 9000, "clinc150": None}  # training texts
TRIAL, TURNS = 128, 3  # texts by which the speed is measured, and how often


def main() -> None:
    options = parse()
    results = Results("encoders")
    if options.speed:
        compare_speed(options, results)
        return
    for name, encoder in encoders(options.encoders).items():
        for data in options.sets:
            train = load(options.data, data, "train", SETS[data])
            for per_class in options.per_class:
                for seed in options.seeds:
                    key = {"encoder": name, "set": data, "per_class": per_class, "unlabelled": options.unlabelled,
                           "seed": seed, "held_out": options.held_out}
                    if not results.has(**key):
                        split = sample_per_class(train, per_class, options.unlabelled, seed)
                        line = run(encoder, split, options.held_out, seed)
                        results.add(**key, **line)
                        print(key, line, flush=True)


def compare_speed(options: argparse.Namespace, results: Results) -> None:
    """How long each encoder takes for the same texts, as a multiple of the first one's time within a turn."""
    loaded = {name: load_encoder(encoder) for name, encoder in encoders(options.encoders).items()}
    for data, turn in product(options.sets, range(TURNS)):
        texts = list(load(options.data, data, "train", SETS[data]).texts[:TRIAL])
        rates = {name: texts_per_second(encoder, texts) for name, encoder in loaded.items()}
        first = next(iter(rates.values()))
        for name, rate in rates.items():
            results.add(what="speed", encoder=name, set=data, turn=turn, texts_per_second=round(rate, 1),
                        times=round(first / rate, 2))
        print(data, turn, rates, flush=True)


def encoders(entries: list[str]) -> dict[str, str]:
    """What `--encoder` would be, by the name in the results."""
    found: dict[str, str] = {}
    for entry in entries:
        name, _, folder = entry.partition("=")
        found[name] = folder or ",".join(found.get(part, part) for part in name.split("+"))
    return found


def run(encoder: str, split: Sample, held_out: int, seed: int) -> dict[str, Any]:
    """Accuracy on texts outside the sample, and what identifies the weights."""
    rest = split.rest.take(range(min(held_out, len(split.rest))))
    classifier = TextClassifier("lift", encoder, "frozen", random_state=seed)
    classifier.fit(split.labelled.texts, split.labelled.labels, unlabelled=split.pool.texts)
    model = classifier.model_
    assert isinstance(model, TrainedModel)
    scores = model.classify(vector_cache(model.encoder)(rest.texts), rest.texts).scores.cpu().numpy()
    predicted = np.asarray(classifier.classes_)[scores.argmax(axis=1)]
    return {"accuracy": round(float((predicted == np.array(rest.labels)).mean()), 4), "n_test": len(rest),
            "width": model.encoder.width, "weights": model.encoder.fingerprint(),
            "fit_seconds": model.facts["run"]["seconds"]}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoders", nargs="+", default=["minilm"])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--per-class", type=int, nargs="+", default=[10])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--unlabelled", type=int, default=4000)
    parser.add_argument("--held-out", type=int, default=2000, help="texts outside the sample that are predicted")
    parser.add_argument("--speed", action="store_true", help="time the encoders")
    return parser.parse_args()


if __name__ == "__main__":
    main()
