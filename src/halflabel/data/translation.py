"""Augmented views by back-translation with two MarianMT models, cached on disk batch by batch."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from halflabel.errors import MissingExtra, ModelError, OutputError, SettingError
from halflabel.integrity import refuse_code

MAX_TOKENS = 512  # limit of Marian models; longer texts are truncated


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
