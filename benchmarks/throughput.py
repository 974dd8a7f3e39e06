"""Speed of prediction and encoding: halflabel against other implementations, on the same texts, encoder and cores.

    python benchmarks/throughput.py [--data FOLDER] [--texts 2000] [--repeats 3] [--ways "halflabel predict" setfit]

The sample corpus is always measured, AG News' test set with `--data`. Implementations ("ways") alternate, so that other
load of the machine affects all of them; each ratio is within one round, and rounds are added to the existing ones.
`peak` is the rate of bare matrix products at the shapes of the encoder's layers in a batch, with as many workers: an
upper bound for encoding in the same precision. The model is the default's after one epoch, so that its predictions are
as confident as a user's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from halflabel import TextClassifier
from halflabel.data.corpus import Corpus, sample
from halflabel.devices import bf16_products
from halflabel.encoders.encoder import Encoder
from halflabel.encoders.inference import encode, threads_for
from halflabel.encoders.loading import load_transformer, locate
from halflabel.encoders.tokens import TOKENS, batches, windows, worker_count
from halflabel.persistence.model import TrainedModel
from halflabel.persistence.onnx_export import export, with_backend
from halflabel.persistence.onnx_model import OnnxModel
from protocol import Results, load, sample_per_class

BATCH = 32  # texts, as in sentence-transformers
BATCH_SIZES = (1, 8, 32, 64)  # of which the pipeline gets its best
Way = Callable[[Sequence[str]], Any]


def main() -> None:
    options = parse()
    if options.threads:
        torch.set_num_threads(options.threads)
    results = Results("throughput")
    for name, train, test in corpora(options):
        clf = TextClassifier(settings={"max_tokens": 256, "epochs": 1})
        split = sample_per_class(train, 20, 1000, seed=0)
        clf.fit(split.labelled.texts, split.labelled.labels, unlabelled=split.pool.texts)
        texts = test.texts[: options.texts]
        with TemporaryDirectory() as folder:
            measure(name, clf.model_, texts, Path(folder), options, results)


def corpora(options: argparse.Namespace) -> list[tuple[str, Corpus, Corpus]]:
    sets = [("sample", sample("train"), sample("train") + sample("test"))]
    if options.data:
        sets.append(("ag_news", load(options.data, "ag_news", "train", 10_000),
                     load(options.data, "ag_news", "test", options.texts)))
    return sets


def measure(name: str, model: TrainedModel, texts: Sequence[str], folder: Path, options: argparse.Namespace,
            results: Results) -> None:
    """Alternates the implementations; one line for each round of each."""
    ways = {key: make(model, folder) for key, make in WAYS.items() if not options.ways or key in options.ways}
    exact = reference(model, texts)
    for key, way in ways.items():
        way(texts[:64])  # compiles, allocates, warms up
        print(f"{name} {key} is ready", flush=True)
    first = 1 + max((line["repeat"] for line in results if line["set"] == name), default=-1)
    for repeat in range(first, first + options.repeats):
        rates = {}
        peak = product_peak(model, texts)
        for key, way in ways.items():
            began = time.perf_counter()
            answer = way(texts)
            seconds = time.perf_counter() - began
            rates[key] = len(texts) / seconds
            line = {"set": name, "way": key, "repeat": repeat, "texts": len(texts), "texts_per_second": rates[key],
                    "flops": work(model, texts) / seconds, "peak": peak} | agreement(answer, exact)
            results.add(**line)
        base = rates.get("sentence-transformers")
        print(name, f"peak {peak / 1e9:.0f} GFLOP/s", {key: f"{rate:.0f}/s" + (f" {rate / base:.2f}x" if base else "")
                                                       for key, rate in rates.items()}, flush=True)


def reference(model: TrainedModel, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Vectors and labels in fp32, as reference."""
    h = encode(model.encoder, texts, dtype=torch.float32)
    return {"vectors": h, "labels": model.classify(h, texts).scores.argmax(dim=1).numpy()}


def agreement(answer: np.ndarray, exact: dict[str, np.ndarray]) -> dict[str, float]:
    """Smallest cosine of vectors, or share of equal labels; empty for implementations with another head."""
    if not len(answer):
        return {}
    if answer.ndim == 1:
        return {"same_labels": float((answer == exact["labels"]).mean())}
    h = exact["vectors"]
    return {"cosine": float(((answer * h).sum(1) / np.linalg.norm(answer, axis=1) / np.linalg.norm(h, axis=1)).min())}


# Implementations: each takes the model and a folder to write to, and returns a function from texts to vectors or
# labels.


def halflabel_encode(model: TrainedModel, folder: Path) -> Way:
    return lambda texts: encode(model.encoder, texts)


def halflabel_predict(backend: str) -> Callable[[TrainedModel, Path], Way]:
    def make(model: TrainedModel, folder: Path) -> Way:
        if backend.startswith("onnx"):
            export(model, folder / backend, sample("test").texts[:256], int8=backend == "onnx-int8")
            exported = OnnxModel(folder / backend)
            return lambda texts: exported.scores(texts).argmax(axis=1)
        chosen = with_backend(model, backend, [])
        return lambda texts: chosen.scores(texts).argmax(axis=1)
    return make


def encoder_of(model: TrainedModel) -> Encoder:
    assert isinstance(model.encoder, Encoder)
    return model.encoder


def transformer(model: TrainedModel) -> Any:
    """The model's encoder and length limit in sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(locate("minilm"), device="cpu")
    theirs[0].auto_model.load_state_dict(encoder_of(model).body.state_dict(), strict=False)  # all but an unused pooler
    theirs.max_seq_length = model.encoder.max_tokens
    return theirs


def sentence_transformers(dtype: torch.dtype) -> Callable[[TrainedModel, Path], Way]:
    """`encode` with its defaults, which sort texts by length."""
    def make(model: TrainedModel, folder: Path) -> Way:
        theirs = transformer(model).to(dtype)
        return lambda texts: theirs.encode(list(texts), show_progress_bar=False)
    return make


def onnx_runtime(model: TrainedModel, folder: Path) -> Way:
    """ONNX Runtime on the same encoder in fp32, by batches of 32 texts that are sorted by length."""
    import onnxruntime

    encoder, file = plain_encoder(model), folder / "plain.onnx"
    example = encoder.tokenizer(["two texts", "of a batch"], padding=True, return_tensors="pt")
    torch.onnx.export(encoder, (example["input_ids"], example["attention_mask"]), file, dynamo=False,
                      input_names=["ids", "mask"], output_names=["vectors"],
                      dynamic_axes={name: {0: "texts", 1: "tokens"} for name in ("ids", "mask")})
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return by_length(encoder, lambda ids, mask: session.run(None, {"ids": ids.numpy(), "mask": mask.numpy()})[0])


def pipeline(model: TrainedModel, folder: Path) -> Way:
    """The text-classification pipeline on the same encoder with its best batch size."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers import pipeline as make

    source = locate("minilm")
    body = AutoModelForSequenceClassification.from_pretrained(source, num_labels=len(model.classes))
    theirs = make("text-classification", model=body, tokenizer=AutoTokenizer.from_pretrained(source), device="cpu")
    size: list[int] = []

    def run(texts: Sequence[str], batch_size: int) -> np.ndarray:
        theirs(list(texts), batch_size=batch_size, truncation=True, max_length=model.encoder.max_tokens)
        return np.empty(0)  # its head is untrained: only its speed is measured

    def way(texts: Sequence[str]) -> np.ndarray:
        if not size:
            seconds = {}
            for batch_size in BATCH_SIZES:
                began = time.perf_counter()
                run(texts, batch_size)
                seconds[batch_size] = time.perf_counter() - began
            size.append(min(seconds, key=lambda one: seconds[one]))
        return run(texts, size[0])
    return way


def setfit(model: TrainedModel, folder: Path) -> Way:
    """`predict` of SetFit with its defaults: sentence-transformers and a logistic head, here fitted to our labels."""
    from setfit import SetFitModel
    from sklearn.linear_model import LogisticRegression

    body, texts = transformer(model), sample("train").texts
    head = LogisticRegression().fit(body.encode(texts, show_progress_bar=False), model.scores(texts).argmax(axis=1))
    theirs = SetFitModel(model_body=body, model_head=head)

    def way(texts: Sequence[str]) -> np.ndarray:
        theirs.predict(list(texts), show_progress_bar=False)
        return np.empty(0)  # it has another head: only its speed is measured
    return way


def plain_encoder(model: TrainedModel) -> Encoder:
    """transformers' model as it loads, with the weights of ours."""
    encoder = load_transformer("minilm", model.encoder.max_tokens).eval()
    encoder.load_state_dict(model.encoder.state_dict())
    return encoder


def plain(model: TrainedModel, folder: Path) -> Way:
    """A tutorial loop: batches of 32 texts in their order, padded to the longest, fp32."""
    encoder = plain_encoder(model)
    return lambda texts: np.concatenate([run(encoder, encoder, texts[start : start + BATCH])
                                         for start in range(0, len(texts), BATCH)])


def tuned(model: TrainedModel, folder: Path) -> Way:
    """The same loop with texts sorted by length and autocast to bf16."""
    encoder = plain_encoder(model)

    def vectors(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return encoder(ids, mask).float()
    return by_length(encoder, vectors)


def by_length(encoder: Encoder, vectors: Callable[[torch.Tensor, torch.Tensor], Any]) -> Way:
    """Batches of 32 texts of similar length."""
    def way(texts: Sequence[str]) -> np.ndarray:
        order = np.argsort([len(text) for text in texts], kind="stable")
        parts = [run(encoder, vectors, [texts[i] for i in order[start : start + BATCH]])
                 for start in range(0, len(texts), BATCH)]
        return np.concatenate(parts)[np.argsort(order)]
    return way


@torch.no_grad()
def run(encoder: Encoder, vectors: Callable[[torch.Tensor, torch.Tensor], Any], texts: Sequence[str]) -> np.ndarray:
    """The vectors of a batch that is padded to its longest text."""
    inputs = encoder.tokenizer(list(texts), padding=True, truncation=True, max_length=encoder.max_tokens,
                               return_tensors="pt")
    return np.asarray(vectors(inputs["input_ids"], inputs["attention_mask"]))


WAYS: dict[str, Callable[[TrainedModel, Path], Way]] = {
    "halflabel encode": halflabel_encode, "halflabel predict": halflabel_predict("torch"),
    "halflabel predict, compile": halflabel_predict("compile"), "halflabel predict, onnx": halflabel_predict("onnx"),
    "halflabel predict, onnx-int8": halflabel_predict("onnx-int8"),
    "sentence-transformers": sentence_transformers(torch.float32),
    "sentence-transformers, bf16": sentence_transformers(torch.bfloat16), "onnxruntime": onnx_runtime,
    "pipeline": pipeline, "setfit": setfit, "plain": plain, "tuned": tuned}


# Upper bound of the machine.


def sizes(model: TrainedModel) -> tuple[int, int, int]:
    config: Any = encoder_of(model).body.config
    return config.hidden_size, config.intermediate_size, config.num_hidden_layers


def work(model: TrainedModel, texts: Sequence[str]) -> float:
    """Floating-point operations for the texts without padding: linear layers and attention."""
    width, wide, layers = sizes(model)
    lengths = np.array([len(ids) for ids in model.encoder.tokens(texts)], dtype=np.float64)
    linear = 2 * (4 * width * width + 2 * width * wide) * lengths.sum()
    return float(layers * (linear + 4 * width * (lengths**2).sum()))


def product_peak(model: TrainedModel, texts: Sequence[str], seconds: float = 2.0) -> float:
    """Operations per second of the layers' matrix products alone, with as many workers as encoding has."""
    width, wide, _ = sizes(model)
    token_counts = [batch.ids.size for batch in batches(windows(model.encoder.tokens, texts), padding=0, limit=TOKENS)]
    tokens = int(np.median(token_counts))
    dtype = torch.bfloat16 if bf16_products(torch.device("cpu")) else torch.float32
    workers = worker_count(torch.get_num_threads(), len(texts))

    def multiply(_: int) -> float:
        pairs = [(torch.randn(tokens, i, dtype=dtype), torch.randn(o, i, dtype=dtype))
                 for i, o in [(width, width)] * 4 + [(width, wide), (wide, width)]]
        done, began = 0.0, time.perf_counter()
        with torch.inference_mode():
            while (spent := time.perf_counter() - began) < seconds:
                for x, w in pairs:
                    torch.nn.functional.linear(x, w)
                    done += 2.0 * tokens * w.numel()
        return done / spent

    with threads_for(workers), ThreadPoolExecutor(workers) as pool:
        return sum(pool.map(multiply, range(workers)))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), help="all when not given")
    parser.add_argument("--threads", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
