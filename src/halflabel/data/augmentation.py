"""Strong views by word edits: words that say little are replaced, dropped or swapped (after UDA)."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halflabel.data.sequences import LazySequence, map_parts
from halflabel.errors import BadInput

WORD = re.compile(r"(\w+(?:['’]\w+)*)")
NEGATIONS = frozenset({
    "no", "not", "nor", "never", "none", "nobody", "nothing", "nowhere", "neither", "without", "hardly",
    "barely", "scarcely", "cannot", "dont", "doesnt", "didnt", "isnt", "arent", "wasnt", "werent", "wont",
    "cant", "couldnt", "shouldnt", "wouldnt", "havent", "hasnt",
})  # fmt: skip
MOST_TEXTS = 100_000
DROPPED, SWAPPED = 0.1, 0.1  # shares of the chosen words; the others are replaced


@dataclass(frozen=True)
class WordEdits:
    """Word edits that leave alone what a text is about.

    A word with score s (its share of the text times its idf) is chosen with probability
    p n (max s - s) / sum(max s - s), UDA's rule: a share `p` of the words on average, never the most telling.
    A replacement is drawn from the words whose idf is at most the average over the corpus, in proportion to
    the square root of the number of texts that hold them. UDA draws from (max - s summed over the corpus),
    which favours rare words and names: in short texts these may be what makes a class (unmeasured).
    """

    idf: dict[str, float]
    unseen: float
    words: list[str]
    cumulative: NDArray[np.float64]
    keep: frozenset[str]
    p: float = 0.3

    @classmethod
    def fit(cls, texts: Sequence[str], *, seed: int, keep: Iterable[str] = (), p: float = 0.3) -> WordEdits:
        """Word counts of the texts, or of 100,000 drawn by `seed` if there are more.

        `keep` takes label names as they are: no word in them is edited.
        """
        if not 0 <= p <= 1:
            raise BadInput(f"p={p} is a share of words; give a number from 0 to 1")
        if len(texts) > MOST_TEXTS:
            rows = np.random.default_rng(seed).choice(len(texts), MOST_TEXTS, replace=False)
            texts = [texts[i] for i in np.sort(rows)]
        kept = frozenset(word for name in keep for word in WORD.findall(str(name).lower()))
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(set(WORD.findall(text.lower())))
        unseen = float(np.log(max(len(texts), 1)))
        idf = {word: unseen - float(np.log(df)) for word, df in counts.items()}
        average = sum(df * idf[word] for word, df in counts.items()) / max(sum(counts.values()), 1)
        words = sorted(word for word, s in idf.items() if s <= average + 1e-9 and not _fixed(word, kept))
        mass = np.cumsum(np.sqrt([counts[word] for word in words]))
        return cls(idf, unseen, words, mass / mass[-1] if words else mass, kept, p)

    def view(self, text: str, rng: np.random.Generator) -> str:
        """One strong view; a text of fewer than two words comes back unchanged."""
        pieces = WORD.split(text)
        words = pieces[1::2]
        if len(words) < 2:
            return text
        lower = [word.lower() for word in words]
        fixed = [_fixed(word, self.keep) for word in lower]
        probability = self._chances(lower)
        probability[fixed] = 0.0
        chosen = np.flatnonzero(rng.random(len(words)) < probability)
        fates, draws = rng.random(len(chosen)), self._draw(rng.random(len(chosen)))
        gone = set()
        for i, fate, word in zip(chosen.tolist(), fates, draws, strict=True):
            if fate < DROPPED:
                gone.add(i)
            elif fate < DROPPED + SWAPPED and i + 1 < len(words) and not fixed[i + 1]:
                words[i], words[i + 1] = words[i + 1], words[i]
            elif word:
                words[i] = word.capitalize() if words[i][0].isupper() else word
        if len(gone) == len(words):
            return text
        return _joined(pieces, words, gone)

    def views(self, texts: Sequence[str], seed: int) -> Sequence[str]:
        """One view for each text, a function of seed and text alone; those of stored texts are made when looked at."""
        if isinstance(texts, LazySequence):
            return map_parts(texts, lambda base: EditedTexts(self, base, seed))
        return [self.view(text, _generator(seed, text)) for text in texts]

    def _chances(self, words: list[str]) -> NDArray[np.float64]:
        counts = Counter(words)
        n = len(words)
        scores = np.array([counts[word] * self.idf.get(word, self.unseen) for word in words]) / n
        gaps = scores.max() - scores
        total = gaps.sum()
        if total <= 1e-12:  # all words tell equally much: 0 / 0 in the rule
            return np.full(n, self.p)
        return np.clip(self.p * n * gaps / total, 0.0, 1.0, dtype=np.float64)

    def _draw(self, at: NDArray[np.float64]) -> list[str]:
        if not self.words:
            return [""] * len(at)
        return [self.words[k] for k in np.searchsorted(self.cumulative, at, side="right").tolist()]


class EditedTexts(LazySequence[str]):
    """Views of texts that are made when they are looked at, always the same."""

    def __init__(self, edits: WordEdits, texts: Sequence[str], seed: int) -> None:
        self.edits, self.texts, self.seed = edits, texts, seed

    def __len__(self) -> int:
        return len(self.texts)

    def row(self, i: int) -> str:
        text = self.texts[i]
        return self.edits.view(text, _generator(self.seed, text))

    @property
    def key(self) -> str:
        """What names these views: the texts, the seed and the words that edits draw from."""
        words = json.dumps([self.seed, self.edits.p, self.edits.words, sorted(self.edits.keep)]).encode()
        base = getattr(self.texts, "key", "")
        return f"{base}-{hashlib.blake2b(words, digest_size=8).hexdigest()}" if base else ""


def _fixed(word: str, keep: frozenset[str]) -> bool:
    if word in keep or word in NEGATIONS or word.endswith(("n't", "n’t")):
        return True
    return any(letter.isnumeric() for letter in word)


def _joined(pieces: list[str], words: list[str], gone: set[int]) -> str:
    """The text with its punctuation; a word that goes takes the blank after it along."""
    out = [pieces[0]]
    for i, word in enumerate(words):
        after = pieces[2 * i + 2]
        if i in gone:
            out.append(after[1:] if after[:1] == " " else after)
        else:
            out += [word, after]
    return "".join(out)


def _generator(seed: int, text: str) -> np.random.Generator:
    content = f"{seed}:{text}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest)))
