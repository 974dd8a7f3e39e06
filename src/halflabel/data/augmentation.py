"""Augmented views of texts: by word edits (after UDA: uninformative words are replaced, deleted or swapped), and by
back-translation with two MarianMT models, cached on disk batch by batch.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halflabel.data.corpus import LazySequence, map_parts
from halflabel.errors import MissingExtra, ModelError, OutputError, SettingError
from halflabel.integrity import refuse_code

WORD = re.compile(r"(\w+(?:['’]\w+)*)")
NEGATIONS = frozenset({
    "no", "not", "nor", "never", "none", "nobody", "nothing", "nowhere", "neither", "without", "hardly",
    "barely", "scarcely", "cannot", "dont", "doesnt", "didnt", "isnt", "arent", "wasnt", "werent", "wont",
    "cant", "couldnt", "shouldnt", "wouldnt", "havent", "hasnt",
})  # fmt: skip
MAX_FIT_TEXTS = 100_000
DELETED, SWAPPED = 0.1, 0.1  # shares of the edited words; the others are replaced
MAX_TOKENS = 512  # limit of Marian models; longer texts are truncated


@dataclass(frozen=True)
class WordEdits:
    """Word edits that keep what a text is about.

    A word with score s (its frequency in the text times its idf) is edited with probability
    p n (max s - s) / sum(max s - s), UDA's rule: a share `p` of the words on average, never the most informative one.
    A replacement is drawn from the words whose idf is at most the average over the corpus, in proportion to the square
    root of their document frequency. UDA draws from (max - s summed over the corpus), which favours rare words and
    names: in short texts these may be what distinguishes a class (unmeasured).
    """

    idf: dict[str, float]
    unseen_idf: float
    words: list[str]  # replacements
    cumulative: NDArray[np.float64]  # their cumulative probabilities
    keep: frozenset[str]
    p: float = 0.3

    @classmethod
    def fit(cls, texts: Sequence[str], *, seed: int, keep: Iterable[str] = (), p: float = 0.3) -> WordEdits:
        """Counts the words of the texts, or of a random sample of 100,000 if there are more.

        Words that occur in `keep`, for example in names of labels, are never edited.
        """
        if not 0 <= p <= 1:
            raise SettingError(f"p={p} is not a share of words; give a number from 0 to 1")
        if len(texts) > MAX_FIT_TEXTS:
            rows = np.random.default_rng(seed).choice(len(texts), MAX_FIT_TEXTS, replace=False)
            texts = [texts[i] for i in np.sort(rows)]
        kept = frozenset(word for name in keep for word in WORD.findall(str(name).lower()))
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(set(WORD.findall(text.lower())))
        unseen_idf = float(np.log(max(len(texts), 1)))
        idf = {word: unseen_idf - float(np.log(df)) for word, df in counts.items()}
        average = sum(df * idf[word] for word, df in counts.items()) / max(sum(counts.values()), 1)
        words = sorted(word for word, s in idf.items() if s <= average + 1e-9 and not _is_protected(word, kept))
        mass = np.cumsum(np.sqrt([counts[word] for word in words]))
        return cls(idf, unseen_idf, words, mass / mass[-1] if words else mass, kept, p)

    def view(self, text: str, rng: np.random.Generator) -> str:
        """An edited version of a text; a text of fewer than two words is returned unchanged."""
        pieces = WORD.split(text)
        words = pieces[1::2]
        if len(words) < 2:
            return text
        lower = [word.lower() for word in words]
        protected = [_is_protected(word, self.keep) for word in lower]
        probability = self._edit_probabilities(lower)
        probability[protected] = 0.0
        chosen = np.flatnonzero(rng.random(len(words)) < probability)
        actions, replacements = rng.random(len(chosen)), self._replacements(rng.random(len(chosen)))
        deleted = set()
        for i, action, replacement in zip(chosen.tolist(), actions, replacements, strict=True):
            if action < DELETED:
                deleted.add(i)
            elif action < DELETED + SWAPPED and i + 1 < len(words) and not protected[i + 1]:
                words[i], words[i + 1] = words[i + 1], words[i]
            elif replacement:
                words[i] = replacement.capitalize() if words[i][0].isupper() else replacement
        if len(deleted) == len(words):
            return text
        return _join(pieces, words, deleted)

    def views(self, texts: Sequence[str], seed: int) -> Sequence[str]:
        """A view of each text, which depends on the seed and the text alone; lazy if the texts are."""
        if isinstance(texts, LazySequence):
            return map_parts(texts, lambda base: EditedTexts(self, base, seed))
        return [self.view(text, _text_generator(seed, text)) for text in texts]

    def _edit_probabilities(self, words: list[str]) -> NDArray[np.float64]:
        counts = Counter(words)
        n = len(words)
        scores = np.array([counts[word] * self.idf.get(word, self.unseen_idf) for word in words]) / n
        gaps = scores.max() - scores
        total = gaps.sum()
        if total <= 1e-12:  # all words are equally informative: the rule is 0 / 0
            return np.full(n, self.p)
        return np.clip(self.p * n * gaps / total, 0.0, 1.0, dtype=np.float64)

    def _replacements(self, quantiles: NDArray[np.float64]) -> list[str]:
        if not self.words:
            return [""] * len(quantiles)
        return [self.words[k] for k in np.searchsorted(self.cumulative, quantiles, side="right").tolist()]


class EditedTexts(LazySequence[str]):
    """Views of texts, made on access and always the same."""

    def __init__(self, edits: WordEdits, texts: Sequence[str], seed: int) -> None:
        self.edits, self.texts, self.seed = edits, texts, seed

    def __len__(self) -> int:
        return len(self.texts)

    def row(self, i: int) -> str:
        text = self.texts[i]
        return self.edits.view(text, _text_generator(self.seed, text))

    @property
    def key(self) -> str:
        """Identifies these views: a hash of the texts, the seed and the words of the edits."""
        words = json.dumps([self.seed, self.edits.p, self.edits.words, sorted(self.edits.keep)]).encode()
        base = getattr(self.texts, "key", "")
        return f"{base}-{hashlib.blake2b(words, digest_size=8).hexdigest()}" if base else ""


def _is_protected(word: str, keep: frozenset[str]) -> bool:
    """Whether a word is never edited: words to keep, negations and numbers."""
    if word in keep or word in NEGATIONS or word.endswith(("n't", "n’t")):
        return True
    return any(letter.isnumeric() for letter in word)


def _join(pieces: list[str], words: list[str], deleted: set[int]) -> str:
    """The text with its punctuation; a deleted word takes the space after it along."""
    text = [pieces[0]]
    for i, word in enumerate(words):
        after = pieces[2 * i + 2]
        text += [after.removeprefix(" ")] if i in deleted else [word, after]
    return "".join(text)


def _text_generator(seed: int, text: str) -> np.random.Generator:
    content = f"{seed}:{text}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest)))


def back_translate(
    texts: Sequence[str],
    *,
    there: str = "Helsinki-NLP/opus-mt-en-de",
    back: str = "Helsinki-NLP/opus-mt-de-en",
    cache: Path,
    batch_size: int = 16,
    temperature: float = 0.9,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Each text translated by the model `there` and then by the model `back`, both sampled at `temperature`.

    `there` and `back` are names on the Hugging Face hub or local folders. Finished batches are written to the folder
    `cache` at once: a killed run loses at most one batch, and a run that resumes gives what an uninterrupted one would
    have given. No model is loaded if all texts are cached. An empty translation is replaced by the text itself.
    `progress` is called with (done, total) distinct texts after each batch.
    """
    if temperature <= 0 or batch_size < 1:
        raise SettingError(f"temperature={temperature} and batch_size={batch_size} must be above 0")
    cached = TranslationCache(cache, [str(there), str(back), temperature, seed, MAX_TOKENS])
    # batches are formed from all texts, cached or not, so that they are the same after an interruption
    unique = sorted({text for text in texts if text.strip()}, key=lambda text: (len(text), text))
    models: list[tuple[Any, Any]] = []
    for start in range(0, len(unique), batch_size):
        missing = [text for text in unique[start : start + batch_size] if text not in cached.views]
        if missing:
            models = models or [_load(str(there)), _load(str(back))]
            views = missing
            for direction, model in enumerate(models):
                views = _translate(views, model, temperature, _batch_seed(seed, direction, missing))
            cached.add(missing, [view.strip() or text for view, text in zip(views, missing, strict=True)])
        if progress:
            progress(min(start + batch_size, len(unique)), len(unique))
    return [cached.views.get(text, text) for text in texts]


class TranslationCache:
    """Translations in an append-only JSON Lines file; a line that an interruption cut off is ignored."""

    def __init__(self, folder: Path, settings: list[Any]) -> None:
        name = hashlib.blake2b(json.dumps(settings).encode(), digest_size=8).hexdigest()
        self.path = Path(folder) / f"back-translation-{name}.jsonl"
        self.views: dict[str, str] = {}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            data = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise OutputError(f"the cache folder {folder} cannot be used ({error}); choose another folder") from None
        for line in data.split(b"\n"):
            try:
                entry = json.loads(line)
                self.views[entry["text"]] = entry["view"]
            except (ValueError, TypeError, KeyError):
                continue
        self._truncated = bool(data) and not data.endswith(b"\n")

    def add(self, texts: list[str], views: list[str]) -> None:
        """Appends a batch in one write and syncs it to disk."""
        pairs = zip(texts, views, strict=True)
        lines = "".join(json.dumps({"text": text, "view": view}) + "\n" for text, view in pairs)
        try:
            with open(self.path, "ab") as file:
                file.write(("\n" * self._truncated + lines).encode("ascii"))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OutputError(f"{self.path} cannot be written ({error}); free some space or choose another cache folder"
                              ) from None
        self._truncated = False
        self.views.update(zip(texts, views, strict=True))


def _load(name: str) -> tuple[Any, Any]:
    """The tokenizer and the model of that name."""
    if importlib.util.find_spec("sentencepiece") is None:
        raise MissingExtra("back-translation needs sentencepiece; install it with: pip install sentencepiece")
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    if Path(name).is_dir():
        refuse_code(Path(name))
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.filterwarnings("ignore", message=".*sacremoses.*")
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
            model = AutoModelForSeq2SeqLM.from_pretrained(name, trust_remote_code=False, use_safetensors=True)
    except Exception as error:  # hub, network and file errors have no common base class
        reason = str(error).partition("\n")[0][:120]
        raise ModelError(f"the translation model {name!r} cannot be loaded ({reason}); connect to the internet to "
                         "download it, or give the folder of a MarianMT model") from None
    return tokenizer, model.eval().to("cuda" if torch.cuda.is_available() else "cpu")


def _translate(texts: list[str], loaded: tuple[Any, Any], temperature: float, seed: int) -> list[str]:
    import torch

    tokenizer, model = loaded
    limit = min(MAX_TOKENS, getattr(model.config, "max_position_embeddings", MAX_TOKENS))
    inputs = tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=limit)
    inputs = inputs.to(model.device)
    longest = min(limit, 2 * inputs["input_ids"].shape[1] + 10)
    devices = [0] if model.device.type == "cuda" else []
    with torch.inference_mode(), torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        # sampled from the whole vocabulary: the models' own settings search for the best translation, not a varied one
        output = model.generate(
            **inputs, do_sample=True, num_beams=1, top_k=0, temperature=temperature, max_new_tokens=longest
        )
    return list(tokenizer.batch_decode(output, skip_special_tokens=True))


def _batch_seed(seed: int, direction: int, texts: list[str]) -> int:
    content = json.dumps([seed, direction, texts]).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=7).digest())
