"""A model that `halflabel export` wrote: predicts with onnxruntime and tokenizers alone; no torch, no transformers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halflabel.data.labels import Classes
from halflabel.decision import Decision
from halflabel.model.schedule import Batch, batches, cores, crew, share, windows
from halflabel.model.tokenizer import Tokenizer, token_ids
from halflabel.types import BadInput, Progress, Task

FORMAT = 1
DESCRIPTION, GRAPH = "export.json", "model.onnx"
NEEDED = ("method", "task", "classes", "max_tokens", "padding", "decision")
TOKENS = 512  # in a batch: int8 leaves the processor's cache sooner than bf16
SLOW = ["SkipLayerNormFusion"]  # onnxruntime's fused sum and norm takes five times as long as the two apart


def is_export(folder: Path) -> bool:
    """Whether `halflabel export` wrote the folder."""
    return (folder / DESCRIPTION).is_file()


class Exported:
    """One ONNX graph from token ids to vectors and scores, and for one label on to probabilities and its column."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.facts = description(self.folder)
        self.task: Task = self.facts["task"]
        self.classes = Classes.from_json(self.facts["classes"])
        self.decision = decision_of(self.facts, self.folder)
        self.tokenizer = Tokenizer(self.folder, self.facts["max_tokens"])
        self.session = _session(self.folder / GRAPH)

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

    def _run(self, output: str, texts: Sequence[str], progress: Progress | None) -> np.ndarray:
        shape = next(one.shape[1:] for one in self.session.get_outputs() if one.name == output)
        kind = np.int64 if output == "label" else np.float32
        found = np.empty((len(texts), *shape), dtype=kind)

        def work(batch: Batch) -> None:
            found[batch.rows] = self.session.run([output], {"ids": batch.ids, "mask": batch.mask})[0]

        todo = batches(windows(self.tokens, texts), padding=self.facts["padding"], tokens=TOKENS)
        share(work, todo, workers=crew(cores(), len(texts)), total=len(texts), progress=progress)
        return found


def description(folder: Path) -> dict[str, Any]:
    """export.json of an exported folder."""
    file = folder / DESCRIPTION
    try:
        facts: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        newer = facts["format"] > FORMAT
    except FileNotFoundError:
        raise BadInput(f"{folder} holds no exported model (there is no {DESCRIPTION} in it); name a folder that "
                       "`halflabel export` wrote.") from None
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{file} is not the description of an export ({error}); export the model again.") from error
    if newer:
        raise BadInput(f"{file} was written by a newer halflabel (format {facts['format']}); upgrade halflabel.")
    if missing := [name for name in NEEDED if name not in facts]:
        raise BadInput(f"{file} does not say its {missing[0]}; export the model again.")
    return facts


def decision_of(facts: dict[str, Any], folder: Path) -> Decision | None:
    """The decision in a description; none where the graph itself decides."""
    if facts["task"] == "multi-class":
        return None
    try:
        return Decision.from_json(facts["decision"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{folder / DESCRIPTION} holds no whole decision ({error}); export the model again."
                       ) from error


def _session(file: Path) -> Any:
    """A session of one thread: several workers run it at once, which beats one worker with several threads."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise BadInput("onnxruntime is not installed; pip install 'halflabel[onnx]'.") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"],
                                            disabled_optimizers=SLOW)
    except Exception as error:  # the runtime raises kinds of its own, none of them public
        raise BadInput(f"{file} is not a whole ONNX graph ({str(error).splitlines()[0]}); export the model again."
                       ) from error
