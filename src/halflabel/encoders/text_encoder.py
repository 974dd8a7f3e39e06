"""The interface of encoders: texts to token ids, token ids to one vector per text; and two encoders without a
network of their own: several encoders as one, and bags of words, whose vector has one entry per word.

To add an architecture, subclass `TextEncoder` and register how it is restored in `loading.RESTORERS`, under a file that
its `save` writes. Nothing else in the package asks which architecture an encoder has.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from halflabel.devices import Compute
from halflabel.errors import ModelError
from halflabel.integrity import COPY_OR_RETRAIN, read_json, require

Backend = Literal["torch", "compile"]
Forward = Callable[[Tensor, Tensor], Tensor]  # token ids and mask (N, T) to vectors (N, H)
JOINED_FILE = "joined.json"
MAX_PARTS = 100
WORD = re.compile(r"\b[^\W\d_]{3,30}\b")  # VAMPIRE's words: 3 to 30 letters, no digits
VOCABULARY_FILE = "vocabulary.json"


class TextEncoder(nn.Module):
    """Token ids and mask (N, T) to one vector per text, (N, H)."""

    max_tokens: int  # longer texts are truncated
    precision: torch.dtype | None = None  # of products; by default bf16 if the hardware has it and it does no harm

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.parameters()).device

    def on(self, compute: Compute) -> Self:
        """The encoder itself, moved to a device."""
        for part in self.parts:
            part.precision = compute.precision
        return self.to(compute.device)

    @property
    def width(self) -> int:
        """H, the width of a vector."""
        raise AssertionError("every encoder defines its width")

    @property
    def parts(self) -> Sequence[TextEncoder]:
        """The encoders whose vectors `join` puts together; only this one, unless several are joined."""
        return [self]

    def join(self, vectors: Sequence[np.ndarray]) -> np.ndarray:
        """The vectors of texts (N, H) from those of the parts."""
        return vectors[0]

    def vocabulary(self) -> list[str]:
        """Whole words of its vocabulary, the most frequent first if the tokenizer has them so."""
        return []

    @property
    def padding(self) -> int:
        """The token id of padding."""
        raise AssertionError("every encoder defines its padding")

    @property
    def special(self) -> frozenset[int]:
        """Token ids that are not part of the text, such as [CLS]; they are never dropped as noise."""
        raise AssertionError("every encoder defines its special tokens")

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each text as int32, truncated, special tokens included."""
        raise AssertionError("every encoder has a tokenizer")

    def fingerprint(self) -> str:
        """A hash of everything that a text's vector depends on; it names the folder of cached vectors."""
        raise AssertionError("every encoder has a fingerprint")

    def tokenizer_fingerprint(self) -> str:
        """A hash of everything that a text's token ids depend on; it names the folder of cached token ids."""
        raise AssertionError("every encoder has a tokenizer fingerprint")

    def save(self, folder: Path) -> None:
        """Writes everything but the weights, which are saved with the model's other tensors."""
        raise AssertionError("every encoder can be saved")

    def inference_forward(self, tokens: list[np.ndarray], *, backend: Backend, dtype: torch.dtype | None,
                          few: bool) -> Forward:
        """The fastest forward pass for a job that starts with these texts; a `dtype` prescribes the precision.

        `few` says that the job is too small to prepare anything for it.
        """
        return self

    @property
    def layers(self) -> Sequence[nn.Module]:
        """The layers from the bottom up; none if they cannot be told apart."""
        return ()

    def freeze_layers(self, number: int) -> None:
        """Stops training the word embeddings and the lowest layers."""
        for layer in self.layers[:number]:
            layer.requires_grad_(False)


class JoinedEncoders(TextEncoder):
    """The vectors of several encoders, (N, H1 + H2 + ...), of unit length; each encoder has the same share in it.

    The encoders have tokenizers of their own, so they encode texts one after the other (`inference.encode`) and cannot
    be fine-tuned together. Where one sequence of token ids is asked for, it is that of the first encoder.
    """

    def __init__(self, encoders: Sequence[TextEncoder]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.max_tokens = encoders[0].max_tokens

    @property
    def parts(self) -> list[TextEncoder]:
        return list(self.encoders)  # type: ignore[arg-type]

    def join(self, vectors: Sequence[np.ndarray]) -> np.ndarray:
        units = [x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in vectors]
        return np.concatenate(units, axis=1) / np.float32(np.sqrt(len(units)))

    @property
    def width(self) -> int:
        return sum(part.width for part in self.parts)

    @property
    def padding(self) -> int:
        return self.parts[0].padding

    @property
    def special(self) -> frozenset[int]:
        return self.parts[0].special

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        return self.parts[0].tokens(texts)

    def vocabulary(self) -> list[str]:
        return self.parts[0].vocabulary()

    def fingerprint(self) -> str:
        parts = " ".join(part.fingerprint() for part in self.parts)
        return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()

    def tokenizer_fingerprint(self) -> str:
        return self.parts[0].tokenizer_fingerprint()

    def save(self, folder: Path) -> None:
        for i, part in enumerate(self.parts):
            (folder / str(i)).mkdir(exist_ok=True)
            part.save(folder / str(i))
        (folder / JOINED_FILE).write_text(json.dumps({"parts": len(self.parts)}), encoding="utf-8")


def restore_joined(folder: Path, weights: dict[str, Tensor],
                   restore: Callable[[Path, dict[str, Tensor]], TextEncoder]) -> JoinedEncoders:
    """Rebuilds joined encoders by `restore`, which rebuilds one of them."""
    settings = read_json(folder / JOINED_FILE)
    require(settings, {"parts": int}, folder / JOINED_FILE)
    if not 2 <= settings["parts"] <= MAX_PARTS:
        raise ModelError(f"{folder / JOINED_FILE} has an impossible number of encoders; {COPY_OR_RETRAIN}")
    by_part: list[dict[str, Tensor]] = [{} for _ in range(settings["parts"])]
    for name, tensor in weights.items():
        _, number, rest = (*name.split(".", 2), "", "")[:3]
        if not number.isdecimal() or int(number) >= len(by_part):
            raise ModelError(f"The weights of {folder} contain {name}, which is of no encoder; {COPY_OR_RETRAIN}")
        by_part[int(number)][rest] = tensor
    return JoinedEncoders([restore(folder / str(i), part) for i, part in enumerate(by_part)])


class BagOfWords(TextEncoder):
    """Word ids to counts, (N, T) -> (N, V), weighted by idf for tf-idf."""

    padding, special = 0, frozenset[int]()
    max_tokens = 2**31 - 1  # texts are never truncated

    def __init__(self, words: Sequence[str], idf: Tensor) -> None:
        super().__init__()
        self.words = list(words)
        self.ids = {word: i for i, word in enumerate(self.words)}
        self.idf = nn.Parameter(idf, requires_grad=False)

    @classmethod
    def fit(cls, texts: Sequence[str], size: int, *, tf_idf: bool) -> BagOfWords:
        """The vocabulary of the `size` most frequent words, without English stop words; never empty."""
        counts: Counter[str] = Counter()
        document_counts: Counter[str] = Counter()
        for text in texts:
            words = words_of(text)
            counts.update(words)
            document_counts.update(set(words))
        vocabulary = sorted(sorted(counts), key=lambda word: -counts[word])[:size] or ["?"]
        # scikit-learn's smooth idf: as if one more text contained every word
        idf = [np.log((1 + len(texts)) / (1 + document_counts[word])) + 1 if tf_idf else 1.0 for word in vocabulary]
        return cls(vocabulary, torch.tensor(idf, dtype=torch.float32))

    @property
    def width(self) -> int:
        return len(self.words)

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids of the known words of each text, in order, with repetitions."""
        return [np.array([self.ids[word] for word in words_of(text) if word in self.ids], dtype=np.int32)
                for text in texts]

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(N, T), (N, T) -> (N, V)."""
        counts = torch.zeros(len(ids), self.width, device=ids.device)
        return counts.scatter_add_(1, ids, mask.float()) * self.idf

    def matrix(self, texts: Sequence[str]) -> Any:
        """The vectors as a sparse matrix (N, V) of float64."""
        from scipy import sparse

        tokens = self.tokens(texts)
        columns = np.concatenate([np.empty(0, dtype=np.int32), *tokens])
        starts = np.cumsum([0, *map(len, tokens)])
        counts = sparse.csr_matrix((np.ones(len(columns)), columns, starts), (len(texts), self.width))
        counts.sum_duplicates()
        return counts.multiply(self.idf.cpu().double().numpy()[None, :]).tocsr()

    def fingerprint(self) -> str:
        content = self.tokenizer_fingerprint().encode() + self.idf.detach().cpu().numpy().tobytes()
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def tokenizer_fingerprint(self) -> str:
        return hashlib.blake2b("\n".join(self.words).encode(), digest_size=16).hexdigest()

    def save(self, folder: Path) -> None:
        (folder / VOCABULARY_FILE).write_text(json.dumps(self.words, ensure_ascii=False), encoding="utf-8")


def restore_bag_of_words(folder: Path, weights: dict[str, Tensor]) -> BagOfWords:
    """Rebuilds an encoder that `BagOfWords.save` wrote, with the idf from the model's weights."""
    file = folder / VOCABULARY_FILE
    try:
        words = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{file} is not a complete vocabulary ({error}); {COPY_OR_RETRAIN}") from error
    idf = weights.get("idf", torch.empty(0))
    distinct = {word for word in words if isinstance(word, str)} if isinstance(words, list) else set()
    if not distinct or not len(distinct) == len(words) == idf.numel() or idf.dim() != 1:
        raise ModelError(f"{file} does not have one word for each weight of the model; {COPY_OR_RETRAIN}")
    return BagOfWords(words, idf)


def words_of(text: str) -> list[str]:
    """Lower-case words of a text without English stop words."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return [word for word in WORD.findall(text.lower()) if word not in ENGLISH_STOP_WORDS]
