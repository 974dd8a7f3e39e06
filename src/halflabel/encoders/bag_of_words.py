"""Bags of words: an encoder without a network, whose vector has one entry per word of the vocabulary."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from halflabel.encoders.text_encoder import TextEncoder
from halflabel.errors import ModelError
from halflabel.integrity import COPY_OR_RETRAIN

WORD = re.compile(r"\b[^\W\d_]{3,30}\b")  # VAMPIRE's words: 3 to 30 letters, no digits
VOCABULARY_FILE = "vocabulary.json"


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
