"""An exported model, which predicts with onnxruntime and tokenizers alone. No torch, no transformers."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from halflabel.data.labels import Classes
from halflabel.encoders.tokens import Batch, Tokenizer, batches, cores, run_workers, token_ids, windows, worker_count
from halflabel.errors import MissingExtra, ModelError, OutputError, SettingError
from halflabel.evaluation.confidence import softmax
from halflabel.evaluation.decisions import Decision, finite
from halflabel.integrity import read_json, refuse_code, require, verify
from halflabel.persistence.model_folder import decision_from_json, read_neighbours, read_words
from halflabel.types import Progress, Task

# read when onnxruntime is imported, which otherwise writes a device id and a database into the user's cache, to send
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# older versions read only exports without these votes, or a prefix
FORMAT, WITHOUT_NEIGHBOURS, WITHOUT_WORDS, WITHOUT_PREFIX = 4, 3, 2, 1
DESCRIPTION, GRAPH = "export.json", "model.onnx"
ENTRIES = {"method": str, "task": str, "classes": list, "max_tokens": int, "padding": int, "decision": object}
OPTIONAL_ENTRIES: dict[str, type] = {"prefix": str}
COPY_OR_EXPORT = "copy or export the model again."
TOKENS = 512  # per batch: int8 exceeds the processor's cache sooner than bf16
SLOW = ["SkipLayerNormFusion"]  # onnxruntime's fused sum and norm takes five times as long as the two separately


def is_export(folder: Path) -> bool:
    """Whether `halflabel export` wrote the folder."""
    return (folder / DESCRIPTION).is_file()


class OnnxModel:
    """An ONNX graph from token ids to vectors and scores, and for multi-class models to probabilities and labels."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.facts = description(self.folder)
        verify(self.folder)
        refuse_code(self.folder)
        self.task: Task = self.facts["task"]
        self.classes = Classes.from_json(self.facts["classes"], self.folder / DESCRIPTION)
        self.decision = decision_of(self.facts, self.folder)
        self.words = (read_words(self.folder, len(self.classes), COPY_OR_EXPORT)
                      if self.facts["format"] > WITHOUT_WORDS else None)
        self.tokenizer = Tokenizer(self.folder, self.facts["max_tokens"])
        self.session = _session(self.folder / GRAPH)
        self.neighbours = (read_neighbours(self.folder, (self._shape("vectors")[0], len(self.classes)), COPY_OR_EXPORT)
                           if self.facts["format"] > WITHOUT_NEIGHBOURS else None)
        self._check()

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each text, truncated at the encoder's limit, special tokens included."""
        return token_ids(self.tokenizer, texts, self.facts["max_tokens"], self.facts.get("prefix", ""))

    def vectors(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """Pooled encoder outputs, (N, H)."""
        return self._run(["vectors"], texts, progress)[0]

    def scores(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """cos(psi) or logits of each label, (N, K); votes of words and neighbours are added to the graph's."""
        if self.neighbours is None:
            scores, = self._run(["scores"], texts, progress)
        else:
            h, scores = self._run(["vectors", "scores"], texts, progress)
            scores += self.neighbours.logits(h)
        return scores if self.words is None else finite(scores + self.words.logits(texts))

    def probabilities(self, texts: Sequence[str], progress: Progress | None = None) -> np.ndarray:
        """p(k | x), (N, K); rows sum to one for multi-class models, labels are independent for multi-label ones."""
        if self.decision is not None:
            return np.asarray(self.decision.probabilities(self.scores(texts, progress)))
        if self.words is None:
            p = self._run(["probabilities"], texts, progress)[0].astype(np.float64)
        else:
            p = softmax(self.scores(texts, progress), self.facts["temperature"]).astype(np.float64)
        return np.asarray(p / p.sum(axis=1, keepdims=True)) if len(p) else p

    def predict(self, texts: Sequence[str]) -> list[Any]:
        """The label of each text; for multi-label models a tuple of labels."""
        if self.decision is not None:
            return list(self.classes.names_of(self.decision(self.scores(texts))))
        labels = self._run(["label"], texts, None)[0] if self.words is None else self.scores(texts).argmax(axis=1)
        return list(self.classes.names_of(labels))

    @property
    def method(self) -> str:
        return str(self.facts["method"])

    def save(self, folder: Path) -> None:
        """Refused: the graph is not kept in memory."""
        raise OutputError(f"{self.folder} is an exported model; copy the folder to have it elsewhere.")

    @property
    def rules(self) -> Decision:
        """The decision, or an error if the model has none: only multi-label models do."""
        if self.decision is None:
            raise SettingError(f"{self.method} predicts one label per text, so there is nothing to decide; "
                               "leave out the decision.")
        return self.decision

    def _check(self) -> None:
        """Refuses a graph that does not fit the classes and the tokenizer; runs it on the first and the last token."""
        names = ["vectors", "scores"] if self.decision is not None else ["vectors", "scores", "probabilities", "label"]
        ids = np.array([[self.facts["padding"], len(self.tokenizer) - 1]])
        try:
            outputs = self.session.run(names, {"ids": ids, "mask": np.ones_like(ids)})
            valid = all(output.shape == (1, len(self.classes)) for output in outputs[1:3]) and all(
                np.isfinite(output).all() for output in outputs)
        except Exception as error:  # the runtime's own exception types are not public
            raise ModelError(f"{self.folder / GRAPH} does not fit its tokenizer ({str(error).splitlines()[0]}); "
                             f"{COPY_OR_EXPORT}") from error
        if not valid:
            raise ModelError(f"{self.folder / GRAPH} does not give one finite score for each of {len(self.classes)} "
                             f"classes; {COPY_OR_EXPORT}")

    def _shape(self, output: str) -> tuple[int, ...]:
        """The shape of an output of the graph for one text."""
        return next(tuple(node.shape[1:]) for node in self.session.get_outputs() if node.name == output)

    def _run(self, outputs: list[str], texts: Sequence[str], progress: Progress | None) -> list[np.ndarray]:
        values = [np.empty((len(texts), *self._shape(name)), np.int64 if name == "label" else np.float32)
                  for name in outputs]

        def work(batch: Batch) -> None:
            results = self.session.run(outputs, {"ids": batch.ids, "mask": batch.mask})
            for value, result in zip(values, results, strict=True):
                value[batch.rows] = result

        queue = batches(windows(self.tokens, texts), padding=self.facts["padding"], limit=TOKENS)
        run_workers(work, queue, workers=worker_count(cores(), len(texts)), total=len(texts), progress=progress)
        return [finite(value) for value in values]


def description(folder: Path) -> dict[str, Any]:
    """export.json of an export folder, validated."""
    file = folder / DESCRIPTION
    if not file.is_file():
        raise ModelError(f"{folder} contains no exported model (no {DESCRIPTION}); name a folder that "
                         "`halflabel export` wrote.")
    facts = read_json(file, COPY_OR_EXPORT)
    require(facts, {"format": int}, file, COPY_OR_EXPORT)
    if facts["format"] > FORMAT:
        raise ModelError(f"{file} was written by a newer version of halflabel (format {facts['format']}); upgrade "
                         "halflabel.")
    present = {name: kind for name, kind in OPTIONAL_ENTRIES.items() if name in facts}
    if facts["format"] > WITHOUT_WORDS:
        present |= {"temperature": float}
    require(facts, ENTRIES | present, file, COPY_OR_EXPORT)
    if facts["task"] not in get_args(Task) or facts["max_tokens"] < 1 or facts["padding"] < 0:
        raise ModelError(f"{file} has an impossible task, max_tokens or padding; {COPY_OR_EXPORT}")
    return facts


def decision_of(facts: dict[str, Any], folder: Path) -> Decision | None:
    """The decision of a multi-label model; None for multi-class, where the graph decides."""
    if facts["task"] == "multi-class":
        return None
    return decision_from_json(facts["decision"], len(facts["classes"]), folder / DESCRIPTION, COPY_OR_EXPORT)


def _session(file: Path) -> Any:
    """A session of one thread: several workers that share it are faster than one worker with several threads."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise MissingExtra("onnxruntime is not installed; pip install 'halflabel[onnx]'.") from None
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised, and explained by us
    if _has_external_weights(file):
        raise ModelError(f"{file} has weights in other files, unlike any export of halflabel; {COPY_OR_EXPORT}")
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"],
                                            disabled_optimizers=SLOW)
    except Exception as error:  # the runtime's own exception types are not public
        raise ModelError(f"{file} is not a complete ONNX graph ({str(error).splitlines()[0]}); {COPY_OR_EXPORT}"
                         ) from error


def _has_external_weights(file: Path) -> bool:
    """Whether a graph reads some of its weights from another file or an address in memory.

    An ONNX file then has an entry with the key `location`; in bytes, the key is preceded by its tag and length.
    """
    if not file.is_file() or not file.stat().st_size:
        return False  # the runtime reports what is wrong with it
    with open(file, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"\x0a\x08location") >= 0
