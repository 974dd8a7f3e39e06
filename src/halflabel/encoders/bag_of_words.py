"""Bags of words: an encoder without a network, whose vector has a place for each word."""

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

from halflabel.errors import BadInput
from halflabel.integrity import AGAIN

WORD = re.compile(r"\b[^\W\d_]{3,30}\b")  # VAMPIRE's words: 3 to 30 letters, no digits
LIMIT = 2**31 - 1  # tokens of a text: all of them
VOCABULARY_FILE = "vocabulary.json"


class BagOfWords(nn.Module):
    """Words to counts, (N, T) -> (N, V), each count times its word's idf where tf-idf is asked for."""

    padding, special, max_tokens = 0, frozenset[int](), LIMIT

    def __init__(self, words: Sequence[str], idf: Tensor) -> None:
        super().__init__()
        self.words = list(words)
        self.places = {word: i for i, word in enumerate(self.words)}
        self.idf = nn.Parameter(idf, requires_grad=False)

    @classmethod
    def fit(cls, texts: Sequence[str], size: int, *, tf_idf: bool) -> BagOfWords:
        """The `size` most frequent words of the texts, English stop words left out; never an empty vocabulary."""
        counts: Counter[str] = Counter()
        holders: Counter[str] = Counter()
        for text in texts:
            found = words_of(text)
            counts.update(found)
            holders.update(set(found))
        words = sorted(sorted(counts), key=lambda word: -counts[word])[:size] or ["?"]
        # scikit-learn's smooth idf: as if one more text held every word
        idf = [np.log((1 + len(texts)) / (1 + holders[word])) + 1 if tf_idf else 1.0 for word in words]
        return cls(words, torch.tensor(idf, dtype=torch.float32))

    @property
    def width(self) -> int:
        return len(self.words)

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Places of the known words of each text, in their order, repeats included."""
        return [np.array([self.places[word] for word in words_of(text) if word in self.places], dtype=np.int32)
                for text in texts]

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(N, T), (N, T) -> (N, V)."""
        counts = torch.zeros(len(ids), self.width, device=ids.device)
        return counts.scatter_add_(1, ids, mask.float()) * self.idf

    def matrix(self, texts: Sequence[str]) -> Any:
        """What `forward` gives, as a sparse (N, V) of float64."""
        from scipy import sparse

        tokens = self.tokens(texts)
        columns = np.concatenate([np.empty(0, dtype=np.int32), *tokens])
        starts = np.cumsum([0, *map(len, tokens)])
        table = sparse.csr_matrix((np.ones(len(columns)), columns, starts), (len(texts), self.width))
        table.sum_duplicates()
        return table.multiply(self.idf.double().numpy()[None, :]).tocsr()

    def tokenizer_fingerprint(self) -> str:
        """A hash of what decides a text's places: the vocabulary."""
        return hashlib.blake2b("\n".join(self.words).encode(), digest_size=16).hexdigest()

    def save(self, folder: Path) -> None:
        """Writes the vocabulary; the idf stands with the model's other tensors."""
        (folder / VOCABULARY_FILE).write_text(json.dumps(self.words, ensure_ascii=False), encoding="utf-8")


def restore_bag_of_words(folder: Path, weights: dict[str, Tensor]) -> BagOfWords:
    """Rebuilds what `Bag.save` wrote, with the idf given by name."""
    file = folder / VOCABULARY_FILE
    try:
        words = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{file} is not a whole vocabulary ({error}); {AGAIN}") from error
    idf = weights.get("idf", torch.empty(0))
    known = {word for word in words if isinstance(word, str)} if isinstance(words, list) else set()
    if not known or not len(known) == len(words) == idf.numel() or idf.dim() != 1:
        raise BadInput(f"{file} does not have one word for each weight of the model; {AGAIN}")
    return BagOfWords(words, idf)


def words_of(text: str) -> list[str]:
    """Lower-case words, English stop words left out."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return [word for word in WORD.findall(text.lower()) if word not in ENGLISH_STOP_WORDS]
