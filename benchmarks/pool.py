"""A pool of a million texts: ingesting it, opening it, random access, and training on it.

    python benchmarks/pool.py --data FOLDER [--sizes 100000 1000000]

Texts of about 40 words are generated with a seed; a share of the words of each belongs to its topic, so that there is
something to learn. Each number comes from a separate process with its own peak memory. Rates are given by wall-clock
and by processor seconds: with other load on the machine, the latter are more reliable. Training uses a random encoder
of one layer and width 32, so that the memory is that of the pool and not of the encoder.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from protocol import Results

WORDS = 20_000
TOPICS = 4  # each has OWN words, the last of the vocabulary
OWN = 200
SHARE = 0.3  # of the words of a text that belong to its topic
BLOCK = 10_000
ROWS = 200_000  # random accesses
TRAIN = {"frozen": ("bdd-s", "frozen"), "tokens": ("bdd-s", "laptop"), "default": ("lift", "laptop")}
STEPS = {"epochs": 2, "epoch_steps": 50, "warmup": 10}


def main() -> None:
    options = parse()
    if options.child:
        print(json.dumps(CHILDREN[options.child[0]](options.data, *options.child[1:])))
        return
    results = Results("pool")
    options.data.mkdir(parents=True, exist_ok=True)
    for n in options.sizes:
        make(options.data, n)
        jobs = [("ingest", "jsonl", n), ("ingest", "parquet", n), ("open", "jsonl", n), ("access", "jsonl", n),
                *(("train", name, n) for name in TRAIN)]
        for what, how, number in jobs:
            if not results.has(what=what, how=how, texts=number):
                line = child(options.data, what, how, number)
                results.add(what=what, how=how, texts=number, **line)
                print(what, how, f"{number:,}", line, flush=True)


def child(data: Path, what: str, how: str, n: int) -> dict[str, Any]:
    """One measurement in a process of its own."""
    command = [sys.executable, __file__, "--data", str(data), "--child", what, how, str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=True,
                          env=os.environ | {"HALFLABEL_CACHE": str(data / "cache"), "HF_HUB_OFFLINE": "1"})
    return json.loads(done.stdout.splitlines()[-1])


def make(data: Path, n: int) -> None:
    """The texts as jsonl and parquet, the same for the same n."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    if file_of(data, "parquet", n).exists():
        return
    rng = np.random.default_rng([23, n])
    words = np.array(vocabulary())
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    with open(file_of(data, "jsonl", n), "w") as lines, ParquetWriter(data / "unfinished.parquet", schema) as table:
        for start in range(0, n, BLOCK):
            texts = written(rng, rng.integers(0, TOPICS, BLOCK), words)
            lines.writelines(json.dumps({"id": start + i, "text": text}) + "\n" for i, text in enumerate(texts))
            table.write_table(pa.table({"id": range(start, start + BLOCK), "text": texts}, schema))
    os.replace(data / "unfinished.parquet", file_of(data, "parquet", n))


def file_of(data: Path, how: str, n: int | str) -> Path:
    return data / f"topics-{n}.{how}"


def written(rng: np.random.Generator, topics: np.ndarray, words: np.ndarray) -> list[str]:
    """A text of each topic: words drawn by a power law, 30 to 50 in a text, some of them its topic's own."""
    drawn = rng.zipf(1.3, (len(topics), 50)) % WORDS
    own = rng.integers(0, OWN, drawn.shape) + (WORDS - OWN * (topics[:, None] + 1))
    drawn = words[np.where(rng.random(drawn.shape) < SHARE, own, drawn)]
    return [" ".join(row[:length]) for row, length in zip(drawn, rng.integers(30, 51, len(topics)), strict=True)]


def vocabulary() -> list[str]:
    """Made-up words of 2 to 9 letters."""
    rng = np.random.default_rng(11)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    return ["".join(letters[rng.integers(0, 26, rng.integers(2, 10))]) for _ in range(WORDS)]


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result of the work, its wall-clock seconds and its processor seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def peak_megabytes() -> float:
    """Peak resident memory, including mapped files."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return round(int(status["VmHWM"].split()[0]) / 1024, 1)


def pool_of(data: Path, how: str, n: str) -> Any:
    from halflabel.data.pool import open_pool

    return open_pool([file_of(data, how, n)])[0]


def ingest(data: Path, how: str, n: str) -> dict[str, Any]:
    """Parse, clean, deduplicate and write the cached pool."""
    import pyarrow.compute
    import pyarrow.json
    import pyarrow.parquet  # noqa: F401

    shutil.rmtree(data / "cache" / "pools", ignore_errors=True)
    before = peak_megabytes()
    pool, wall, cpu = timed(lambda: pool_of(data, how, n))
    return {"per_second": round(len(pool) / wall), "per_cpu_second": round(len(pool) / cpu),
            "kept": len(pool), "peak_mb": peak_megabytes(), "before_mb": before}


def opened(data: Path, how: str, n: str) -> dict[str, Any]:
    """Open the cached pool directly, and by hashing its source file."""
    from halflabel.data.columns import TextColumn

    place = Path(pool_of(data, how, n).texts.files[0])
    _, wall, cpu = timed(lambda: TextColumn(place, "again"))
    _, whole, whole_cpu = timed(lambda: pool_of(data, how, n))
    return {"seconds": round(wall, 4), "cpu_seconds": round(cpu, 4), "with_hash_seconds": round(whole, 3),
            "with_hash_cpu_seconds": round(whole_cpu, 3)}


def access(data: Path, how: str, n: str) -> dict[str, Any]:
    """Rows in random order, one at a time."""
    texts = pool_of(data, how, n).texts
    rows = np.random.default_rng(0).integers(0, len(texts), ROWS).tolist()
    characters, wall, cpu = timed(lambda: [len(texts[i]) for i in rows])
    return {"per_second": round(ROWS / wall), "per_cpu_second": round(ROWS / cpu), "peak_mb": peak_megabytes(),
            "mean_characters": round(float(np.mean(characters)), 1)}


def train(data: Path, name: str, n: str) -> dict[str, Any]:
    """A short run of a method on the pool, from `fit` to a model."""
    from halflabel import TextClassifier

    texts = pool_of(data, "jsonl", n).texts
    topics = np.arange(10 * TOPICS) % TOPICS
    labelled = written(np.random.default_rng(31), topics, np.array(vocabulary()))
    method, plan = TRAIN[name]
    steps = STEPS if method != "lift" else {"epochs": 2, "epoch_steps": 50}
    clf = TextClassifier(method, tiny_encoder(data), plan, settings=steps)
    before = peak_megabytes()
    _, wall, cpu = timed(lambda: clf.fit(labelled, [f"topic {k}" for k in topics], unlabelled=texts))
    return {"method": method, "plan": plan, "seconds": round(wall, 1), "cpu_seconds": round(cpu, 1),
            "peak_mb": peak_megabytes(), "before_mb": before, "pseudo_labelled": int((clf.labeled_iter_ > 0).sum())}


def tiny_encoder(data: Path) -> str:
    """A folder with a random one-layer BERT of width 32 whose vocabulary is that of the texts."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = data / "encoder"
    if folder.exists():
        return str(folder)
    names = {w: i for i, w in enumerate(dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *vocabulary()]))}
    tokenizer = Tokenizer(models.WordPiece(names, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
                            sep_token="[SEP]", mask_token="[MASK]").save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(names), hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=64, max_position_embeddings=64)
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return str(folder)


CHILDREN: dict[str, Callable[..., dict[str, Any]]] = {"ingest": ingest, "open": opened, "access": access,
                                                      "train": train}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
