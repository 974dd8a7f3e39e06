"""Hashed n-grams of words or of characters, and their TF-IDF weights, by numpy alone.

Texts are lower-cased and joined into one array of code points, on which n-grams are found and hashed without a loop
over texts or words. An import of scikit-learn would take longer than predicting ten thousand texts.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

Kind = Literal["static", "words", "characters"]  # static: words, whose weights are fitted with vectors of words
KINDS: tuple[Kind, ...] = get_args(Kind)
BITS = 20
BUCKETS = 1 << BITS
LENGTHS = (3, 4, 5)  # of n-grams of characters
BASE = np.uint64(0x9E3779B97F4A7C15)  # of the polynomial hash; odd, so that it has an inverse modulo 2^64
INVERSE = np.uint64(pow(int(BASE), -1, 1 << 64))
MIXER = np.uint64(0xD6E8FEB86659FD93)
NEWLINE = 10
SEPARATOR, PART, ALONE = 0, 1, 2  # what a character is to a word: between words, part of one, or a word by itself
LAST = 0xFFFF  # characters beyond, such as emoji, are words by themselves
IDEOGRAPHS = ((0x3040, 0x3100), (0x3400, 0xA000), (0xF900, 0xFB00))  # of scripts that put no spaces between words

Codes = NDArray[np.uint32]
Hashes = NDArray[np.uint64]
Ints = NDArray[np.int64]


class Occurrences(NamedTuple):
    """N-grams as they occur: the row of the text and the bucket of the hash, (M,) each."""

    rows: Ints
    buckets: Ints


def occurrences(texts: Sequence[str], kind: Kind) -> Occurrences:
    """All n-grams of the texts: words and pairs of words, or 3 to 5 characters within a word and its borders."""
    lowered = [text.lower() for text in texts]
    codes = _codes("\n".join(["", *lowered, ""]))
    lengths = np.fromiter(map(len, lowered), np.int64, len(lowered))
    row_of = np.repeat(np.arange(len(lowered)), lengths + 1)  # of each character but the first, a newline
    positions, hashes = (_characters if kind == "characters" else _words)(codes, row_of)
    return Occurrences(row_of[positions], ((hashes * MIXER) >> np.uint64(64 - BITS)).astype(np.int64))


def distinct_words(texts: Sequence[str]) -> list[str]:
    """The words of the texts, lower-cased, in order."""
    joined = "\n".join(["", *(text.lower() for text in texts), ""])
    starts, ends = _word_bounds(_codes(joined))
    return sorted({joined[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)})


def _codes(text: str) -> Codes:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _word_bounds(codes: Codes) -> tuple[Ints, Ints]:
    """Where words start and end."""
    kinds = _word_characters()[np.minimum(codes, LAST)]
    inside, alone = kinds != SEPARATOR, kinds == ALONE
    joined = inside[1:] & inside[:-1] & ~alone[1:] & ~alone[:-1]  # a character continues the word of the one before
    return np.flatnonzero(inside[1:] & ~joined) + 1, np.flatnonzero(inside[:-1] & ~joined) + 1


def _words(codes: Codes, row_of: Ints) -> tuple[Ints, Hashes]:
    """Positions and hashes of words and of pairs of neighbouring words of a text."""
    starts, ends = _word_bounds(codes)
    powers, inverses = _powers(len(codes))
    prefix = np.zeros(len(codes) + 1, np.uint64)
    np.cumsum(codes * powers, out=prefix[1:])
    words = (prefix[ends] - prefix[starts]) * inverses[starts]
    rows = row_of[starts - 1]
    together = np.flatnonzero(rows[1:] == rows[:-1])
    pairs = words[together] * MIXER + (words[together + 1] ^ BASE)
    return np.concatenate([starts, starts[together]]) - 1, np.concatenate([words, pairs])


def _characters(codes: Codes, row_of: Ints) -> tuple[Ints, Hashes]:
    """Positions and hashes of n-grams that have whitespace at most at their ends."""
    space = _whitespace()[np.minimum(codes, LAST)]
    values = np.where(space, np.uint32(32), codes).astype(np.uint64)
    before = np.concatenate([[0], np.cumsum(space)])  # whitespace before each position
    hashes = values[:-1] * BASE + values[1:]
    positions, found = [], []
    for n in LENGTHS:
        hashes = hashes[: len(values) - n + 1] * BASE + values[n - 1 :]
        within = np.flatnonzero(before[n - 1 : len(values)] == before[1 : len(values) - n + 2])
        positions.append(within)
        found.append(hashes[within] + np.uint64(n))
    return np.concatenate(positions), np.concatenate(found)


@cache
def _word_characters() -> NDArray[np.uint8]:
    """What each character up to LAST is to a word: letters, marks and numbers are parts of it."""
    kinds = np.array([PART if unicodedata.category(chr(code))[0] in "LMN" else SEPARATOR for code in range(LAST + 1)],
                     np.uint8)
    for low, high in IDEOGRAPHS:
        kinds[low:high] *= ALONE
    kinds[LAST] = ALONE
    return kinds


@cache
def _whitespace() -> NDArray[np.bool_]:
    return np.array([chr(code).isspace() for code in range(LAST + 1)])


_known_powers = np.ones((2, 1), np.uint64)


def _powers(number: int) -> tuple[Hashes, Hashes]:
    """Powers of BASE and of its inverse; they are kept, since every chunk of texts needs them."""
    global _known_powers
    if _known_powers.shape[1] < number:
        factors = np.ones((2, 1 << number.bit_length()), np.uint64)
        factors[0, 1:], factors[1, 1:] = BASE, INVERSE
        _known_powers = np.cumprod(factors, axis=1, dtype=np.uint64)
    return _known_powers[0, :number], _known_powers[1]
