"""Strong views by translating there and back with two MarianMT models, kept on disk batch by batch."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from halflabel.errors import BadInput
from halflabel.integrity import refuse_code

MOST_TOKENS = 512  # what Marian models take; a longer text is cut there


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
    """Each text translated `there` and `back`, both ways sampled at `temperature`.

    `there` and `back` are names on the Hugging Face hub or local folders. `cache` is a folder; finished
    batches are in it at once, so a killed run loses one batch at most, and going on gives what an unbroken
    run would have given. Nothing is loaded if everything is in the cache. An empty translation is replaced by
    the text itself. `progress` is called with (done, total) different texts after each batch.
    """
    if temperature <= 0 or batch_size < 1:
        raise BadInput(f"temperature={temperature} and batch_size={batch_size} must be above 0")
    store = Store(cache, [str(there), str(back), temperature, seed, MOST_TOKENS])
    # batches come from all texts, cached or not, so that they are the same before and after a kill
    unique = sorted({text for text in texts if text.strip()}, key=lambda text: (len(text), text))
    models: list[tuple[Any, Any]] = []
    for start in range(0, len(unique), batch_size):
        missing = [text for text in unique[start : start + batch_size] if text not in store.found]
        if missing:
            models = models or [_load(str(there)), _load(str(back))]
            views = missing
            for way, pair in enumerate(models):
                views = _translate(views, pair, temperature, _batch_seed(seed, way, missing))
            store.add(missing, [view.strip() or text for view, text in zip(views, missing, strict=True)])
        if progress:
            progress(min(start + batch_size, len(unique)), len(unique))
    return [store.found.get(text, text) for text in texts]


class Store:
    """Translations on disk, a JSON line each, only ever appended to; a line cut off by a kill is ignored."""

    def __init__(self, folder: Path, settings: list[Any]) -> None:
        name = hashlib.blake2b(json.dumps(settings).encode(), digest_size=8).hexdigest()
        self.path = Path(folder) / f"back-translation-{name}.jsonl"
        self.found: dict[str, str] = {}
        self._torn = False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            data = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise BadInput(f"the cache {folder} cannot be used ({error}); name another folder") from None
        for line in data.split(b"\n"):
            try:
                entry = json.loads(line)
                self.found[entry["text"]] = entry["view"]
            except (ValueError, TypeError, KeyError):
                continue
        self._torn = not data.endswith(b"\n") and bool(data)

    def add(self, texts: list[str], views: list[str]) -> None:
        """Append a batch in one write and bring it to the disk."""
        pairs = zip(texts, views, strict=True)
        lines = "".join(json.dumps({"text": text, "view": view}) + "\n" for text, view in pairs)
        try:
            with open(self.path, "ab") as file:
                file.write(("\n" * self._torn + lines).encode("ascii"))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            trouble = f"{self.path} cannot be written ({error})"
            raise BadInput(f"{trouble}; make room or name another cache") from None
        self._torn = False
        self.found.update(zip(texts, views, strict=True))


def _load(name: str) -> tuple[Any, Any]:
    if importlib.util.find_spec("sentencepiece") is None:
        raise BadInput("back-translation needs sentencepiece; install it with: pip install sentencepiece")
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    if Path(name).is_dir():
        refuse_code(Path(name))
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.filterwarnings("ignore", message=".*sacremoses.*")
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
            model = AutoModelForSeq2SeqLM.from_pretrained(name, trust_remote_code=False, use_safetensors=True)
    except Exception as error:  # hub, network and file errors have no common parent
        reason = str(error).partition("\n")[0][:120]
        remedy = "go online once to fetch it, or give the folder of a MarianMT model"
        raise BadInput(f"the translation model {name!r} cannot be loaded ({reason}); {remedy}") from None
    return tokenizer, model.eval().to("cuda" if torch.cuda.is_available() else "cpu")


def _translate(texts: list[str], pair: tuple[Any, Any], temperature: float, seed: int) -> list[str]:
    import torch

    tokenizer, model = pair
    limit = min(MOST_TOKENS, getattr(model.config, "max_position_embeddings", MOST_TOKENS))
    inputs = tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=limit)
    inputs = inputs.to(model.device)
    longest = min(limit, 2 * inputs["input_ids"].shape[1] + 10)
    devices = [0] if model.device.type == "cuda" else []
    with torch.inference_mode(), torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        # one beam, whole vocabulary: the models' own settings seek the best translation, not a varied one
        output = model.generate(
            **inputs, do_sample=True, num_beams=1, top_k=0, temperature=temperature, max_new_tokens=longest
        )
    return list(tokenizer.batch_decode(output, skip_special_tokens=True))


def _batch_seed(seed: int, way: int, texts: list[str]) -> int:
    content = json.dumps([seed, way, texts]).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=7).digest())
