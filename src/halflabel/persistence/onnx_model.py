"""A model that `halflabel export` wrote: predicts with onnxruntime and tokenizers alone; no torch, no transformers."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from halflabel.data.labels import Classes
from halflabel.encoders.batching import Batch, batches, cores, run_workers, windows, worker_count
from halflabel.encoders.tokenizer import Tokenizer, token_ids
from halflabel.errors import BadInput
from halflabel.evaluation.decisions import Decision, finite
from halflabel.integrity import read_json, refuse_code, require, verify
from halflabel.types import Progress, Task

FORMAT = 1
DESCRIPTION, GRAPH = "export.json", "model.onnx"
ENTRIES = {"method": str, "task": str, "classes": list, "max_tokens": int, "padding": int, "decision": object}
AGAIN = "copy or export the model again."
TOKENS = 512  # in a batch: int8 leaves the processor's cache sooner than bf16
SLOW = ["SkipLayerNormFusion"]  # onnxruntime's fused sum and norm takes five times as long as the two apart


def is_export(folder: Path) -> bool:
    """Whether `halflabel export` wrote the folder."""
    return (folder / DESCRIPTION).is_file()


class OnnxModel:
    """One ONNX graph from token ids to vectors and scores, and for one label on to probabilities and its column."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.facts = description(self.folder)
        verify(self.folder)
        refuse_code(self.folder)
        self.task: Task = self.facts["task"]
        self.classes = Classes.from_json(self.facts["classes"], self.folder / DESCRIPTION)
        self.decision = decision_of(self.facts, self.folder)
        self.tokenizer = Tokenizer(self.folder, self.facts["max_tokens"])
        self.session = _session(self.folder / GRAPH)
        self._check()

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each text, cut at the encoder's limit, special tokens included."""
        return token_ids(self.tokenizer, texts, self.facts["max_tokens"])

    def vectors(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """Pooled encoder states, (N, H)."""
        return self._run("vectors", texts, progress)

    def scores(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """cos(psi) or logits of each label, (N, K)."""
        return self._run("scores", texts, progress)

    def probabilities(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """p(k | x), (N, K); rows sum to one, or where texts have several labels each label is by itself."""
        if self.decision is not None:
            return np.asarray(self.decision.probabilities(self.scores(texts, progress)))
        p = self._run("probabilities", texts, progress).astype(np.float64)
        return np.asarray(p / p.sum(axis=1, keepdims=True)) if len(p) else p

    def predict(self, texts: Sequence[str]) -> list[Any]:
        """The label of each text, decided inside the graph; where texts have several labels, a tuple of each."""
        if self.decision is not None:
            return list(self.classes.names_of(self.decision(self.scores(texts))))
        return list(self.classes.names_of(self._run("label", texts, None)))

    @property
    def rules(self) -> Decision:
        """The decision, which only models for several labels have."""
        if self.decision is None:
            raise BadInput(f"{self.facts['method']} gives one label for each text, so there is nothing to decide.")
        return self.decision

    def _check(self) -> None:
        """Refuses a graph that does not go with the classes and the tokenizer; tries the first and the last token."""
        wanted = ["vectors", "scores"] if self.decision is not None else ["vectors", "scores", "probabilities", "label"]
        ids = np.array([[self.facts["padding"], len(self.tokenizer) - 1]])
        try:
            found = self.session.run(wanted, {"ids": ids, "mask": np.ones_like(ids)})
            fit = all(one.shape == (1, len(self.classes)) for one in found[1:3]) and all(map(np.all, map(
                np.isfinite, found)))
        except Exception as error:  # the runtime raises kinds of its own, none of them public
            raise BadInput(f"{self.folder / GRAPH} does not go with its tokenizer ({str(error).splitlines()[0]}); "
                           f"{AGAIN}") from error
        if not fit:
            raise BadInput(f"{self.folder / GRAPH} does not give one finite score for each of {len(self.classes)} "
                           f"classes; {AGAIN}")

    def _run(self, output: str, texts: Sequence[str], progress: Progress | None) -> np.ndarray:
        shape = next(one.shape[1:] for one in self.session.get_outputs() if one.name == output)
        kind = np.int64 if output == "label" else np.float32
        found = np.empty((len(texts), *shape), dtype=kind)

        def work(batch: Batch) -> None:
            found[batch.rows] = self.session.run([output], {"ids": batch.ids, "mask": batch.mask})[0]

        todo = batches(windows(self.tokens, texts), padding=self.facts["padding"], tokens=TOKENS)
        run_workers(work, todo, workers=worker_count(cores(), len(texts)), total=len(texts), progress=progress)
        return finite(found)


def description(folder: Path) -> dict[str, Any]:
    """export.json of an exported folder."""
    file = folder / DESCRIPTION
    if not file.is_file():
        raise BadInput(f"{folder} holds no exported model (there is no {DESCRIPTION} in it); name a folder that "
                       "`halflabel export` wrote.")
    facts = read_json(file, AGAIN)
    require(facts, {"format": int}, file, AGAIN)
    if facts["format"] > FORMAT:
        raise BadInput(f"{file} was written by a newer halflabel (format {facts['format']}); upgrade halflabel.")
    require(facts, ENTRIES, file, AGAIN)
    if facts["task"] not in get_args(Task) or facts["max_tokens"] < 1 or facts["padding"] < 0:
        raise BadInput(f"{file} has a task, a length or a padding that no export has; {AGAIN}")
    return facts


def decision_of(facts: dict[str, Any], folder: Path) -> Decision | None:
    """The decision in a description; none where the graph itself decides."""
    if facts["task"] == "multi-class":
        return None
    try:
        return Decision.from_json(facts["decision"], len(facts["classes"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BadInput(f"{folder / DESCRIPTION} holds no whole decision ({error}); {AGAIN}") from error


def _session(file: Path) -> Any:
    """A session of one thread: several workers run it at once, which beats one worker with several threads."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise BadInput("onnxruntime is not installed; pip install 'halflabel[onnx]'.") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if _points_elsewhere(file):
        raise BadInput(f"{file} has weights in other files, which no export of halflabel has; {AGAIN}")
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"],
                                            disabled_optimizers=SLOW)
    except Exception as error:  # the runtime raises kinds of its own, none of them public
        raise BadInput(f"{file} is not a whole ONNX graph ({str(error).splitlines()[0]}); {AGAIN}") from error


def _points_elsewhere(file: Path) -> bool:
    """Whether a graph names another file, or a place in memory, for some of its weights.

    In an ONNX file that is an entry with the key `location`; in bytes, the key with its tag and length before it.
    """
    if not file.is_file() or not file.stat().st_size:
        return False  # the runtime says what is wrong with it
    with open(file, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"\x0a\x08location") >= 0
