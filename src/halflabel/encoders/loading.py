"""Loading encoders: by name from the Hugging Face hub, from a folder, or from a saved model; and `--encoder auto`.

`auto` is the encoder on whose vectors held-out labels are predicted best: ridge regression on frozen vectors predicts
each label from all other labelled texts; leaving one out has a closed form, so that the choice costs little more than
encoding the labelled texts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from halflabel.atomic import cache_folder
from halflabel.cache_limit import in_use
from halflabel.devices import check_finite, fits, shapes_only
from halflabel.encoders.bert import empty_bert, is_bert
from halflabel.encoders.cache import EncoderCache
from halflabel.encoders.catalogue import CATALOGUE, MINILM, find_known, find_place, is_auto, names_in, verified_folder
from halflabel.encoders.encoder import POOLING_FILE, Encoder
from halflabel.encoders.inference import SMALL, encode
from halflabel.encoders.text_encoder import (
    JOINED_FILE,
    VOCABULARY_FILE,
    JoinedEncoders,
    TextEncoder,
    restore_bag_of_words,
    restore_joined,
)
from halflabel.encoders.tokens import TOKENIZER_FILE, Tokenizer
from halflabel.errors import EncoderError, HalflabelError, ModelError, SettingError
from halflabel.integrity import COPY_OR_RETRAIN, read_json, refuse_code, require
from halflabel.notices import Notice
from halflabel.randomness import Stream, generator
from halflabel.types import Plan

COPY = "copy the encoder again."
REPEATED = re.compile("layer|block|group|expert|depth")  # entries of a configuration that count repeated modules
SHARED = 100  # layers that may share their weights
POOLINGS = ("mean", "cls", "max")
MAX_DEPTHS, MAX_TOKENS, MAX_PREFIX = 100, 10**6, 1000  # in a pooling.json


# Encoders that are no transformers, by name: a function of max_tokens.
LOADERS: dict[str, Callable[[int], TextEncoder]] = {}

SHARE = 0.1  # of the minutes of the plan that the choice may take
MAX_TEXTS = 1000  # labelled texts that are used
RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0)  # strengths of ridge regression, of which the best for held-out labels is taken


def load_encoder(name: str, max_tokens: int = 256, depths: int = 1) -> TextEncoder:
    """Loads a name of the catalogue or of `LOADERS`, a folder, or a name on the hub; several, with commas, joined."""
    if is_auto(name):
        raise SettingError(f"--encoder {name} chooses by held-out labels, which only training does; name an encoder.")
    parts = [LOADERS[part](max_tokens) if part in LOADERS else load_transformer(part, max_tokens, depths)
             for part in names_in(name)]
    return parts[0] if len(parts) == 1 else JoinedEncoders(parts)


def load_transformer(name: str, max_tokens: int = 256, depths: int = 1) -> Encoder:
    """Loads a transformer; code that comes with a model is never executed."""
    known, source = find_known(name), locate(name)
    if known is not None:
        max_tokens = min(max_tokens, known.tokens)
    local = Path(source).is_dir()
    _lock = in_use(Path(source)) if local else None  # it may be in the cache, which another process clears
    if local:
        _check_folder(Path(source))
    from transformers import AutoModel

    _silence_transformers()
    try:
        tokenizer = _tokenizer(source, local)
        body, report = AutoModel.from_pretrained(source, trust_remote_code=False, local_files_only=local,
                                                 dtype=torch.float32, use_safetensors=True, output_loading_info=True,
                                                 attn_implementation=_attention())
        if missing := sorted(key for key in report["missing_keys"] if not key.startswith("pooler.")):
            raise ValueError(f"it has no weights for {missing[0]}")
        if hasattr(body.config, "auto_map"):
            del body.config.auto_map  # the code that it names was not used, and a saved model must not name any
        encoder = Encoder(body, tokenizer, pooling=known.pooling if known else pooling_of(source),
                          max_tokens=max_tokens, depths=depths, prefix=known.prefix if known else "")
        _check_vocabulary(encoder)
    except HalflabelError:
        raise
    except Exception as error:  # inconsistent files make the libraries raise anything
        raise EncoderError(f"The encoder '{name}' could not be loaded ({_reason(error)}); give the name of a model on "
                           "the Hugging Face hub that can be downloaded, or a folder that contains one.") from error
    check_finite(encoder.state_dict(), f"The encoder '{name}'", EncoderError)
    return encoder


def restore_encoder(folder: Path, weights: dict[str, Tensor]) -> TextEncoder:
    """Rebuilds an encoder that `TextEncoder.save` wrote, with weights by name."""
    for file, restore in RESTORERS.items():
        if (folder / file).is_file():
            return restore(folder, weights)
    raise ModelError(f"{folder} contains no encoder (none of {', '.join(RESTORERS)}); {COPY_OR_RETRAIN}")


def restore_transformer(folder: Path, weights: dict[str, Tensor]) -> Encoder:
    """Rebuilds a transformer.

    A BERT with a tokenizer.json is built from our own classes, since importing transformers would be most of the time
    until the first prediction; every other architecture is built by transformers.
    """
    settings, config = read_json(folder / POOLING_FILE), read_json(folder / "config.json")
    refuse_code(folder)
    check_pooling(settings, folder / POOLING_FILE)
    _check_layers(config, len(weights), folder / "config.json", ModelError)
    try:
        if is_bert(config) and (folder / TOKENIZER_FILE).is_file():
            encoder = Encoder(empty_bert(config), Tokenizer(folder, settings["max_tokens"]), **settings)
            encoder.load_state_dict(weights, assign=True)
        else:
            encoder = _restore_by_transformers(folder, settings, weights)
        _check_vocabulary(encoder)
        _check_forward(encoder.eval())
    except HalflabelError:
        raise
    except Exception as error:  # inconsistent files make torch and transformers raise anything
        raise ModelError(f"{folder} does not fit the weights of the model ({_reason(error)}); {COPY_OR_RETRAIN}"
                         ) from error
    return encoder


RESTORERS: dict[str, Callable[[Path, dict[str, Tensor]], TextEncoder]] = {
    POOLING_FILE: restore_transformer,
    VOCABULARY_FILE: restore_bag_of_words,
    JOINED_FILE: lambda folder, weights: restore_joined(folder, weights, restore_encoder),
}


def _restore_by_transformers(folder: Path, settings: dict[str, Any], weights: dict[str, Tensor]) -> Encoder:
    """Builds the model first without memory, so that a configuration cannot claim more than the weights have."""
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    tokenizer = _tokenizer(str(folder), local=True)

    def build() -> Encoder:
        return Encoder(AutoModel.from_config(config, trust_remote_code=False, attn_implementation=_attention()),
                       tokenizer, **settings)

    with shapes_only():
        empty = build()
    if not fits(empty, weights):
        raise ValueError("config.json describes other weights")
    encoder = build()
    encoder.load_state_dict(weights)
    return encoder


def _check_folder(folder: Path) -> None:
    """Refuses an encoder's folder that contains code, or whose configuration has more layers than weights."""
    refuse_code(folder)
    if not (folder / "config.json").is_file():
        return  # transformers reports what is missing
    try:
        names = [name for file in folder.glob("*.safetensors") for name in safe_open(file, "pt").keys()]  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise EncoderError(f"{folder} has weights that are not a complete safetensors file ({error}); {COPY}"
                           ) from error
    _check_layers(read_json(folder / "config.json", COPY), len(names), folder / "config.json", EncoderError)


def _check_layers(config: dict[str, Any], weights: int, file: Path, error: type[HalflabelError]) -> None:
    """Refuses more layers than weights, before minutes are spent on building them."""
    for name, value in config.items():
        if isinstance(value, dict):
            _check_layers(value, weights, file, error)
        elif REPEATED.search(name) and isinstance(value, int) and value > max(weights, SHARED):
            raise error(f"{file} has {name}={value}, but there are only {weights} weights; copy the model again.")


def _check_vocabulary(encoder: Encoder) -> None:
    """Refuses token ids without an embedding; encoders that hash characters have no limit."""
    tokens, rows = len(encoder.tokenizer), getattr(encoder.body.config, "vocab_size", None)
    if rows is not None and tokens > rows:
        raise ValueError(f"its tokenizer has {tokens} tokens, its embeddings {rows}")


@torch.inference_mode()
def _check_forward(encoder: Encoder) -> None:
    """Encodes a few tokens, so that inconsistent files fail when the model is loaded, not at its first text."""
    ids = torch.full((1, min(16, encoder.max_tokens)), encoder.padding)
    ids[0, -1] = len(encoder.tokenizer) - 1
    h = encoder(ids, torch.ones_like(ids))
    if h.shape != (1, encoder.width) or not bool(h.isfinite().all()):
        raise ValueError("its vectors are not finite numbers")


def _reason(error: Exception) -> str:
    """The first line of a library's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def locate(name: str) -> str:
    """The folder of an encoder of the catalogue, verified by its hash; other names as they are."""
    known = find_known(name)
    return name if known is None else str(verified_folder(known))


def _attention() -> str:
    """On a CPU, plain attention is faster to differentiate than the fused kernel."""
    return "sdpa" if torch.accelerator.is_available() else "eager"


def _silence_transformers() -> None:
    """Turns off warnings about the pooler's weights, which are not needed, and progress bars of shards."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _tokenizer(source: str, local: bool) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, local_files_only=local)
    tokenizer.model_max_length = int(1e9)  # the encoder's own limit applies
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # transformers returns this for a folder without its files
        raise ValueError("its tokenizer has no vocabulary")
    tokenizer.init_kwargs.pop("auto_map", None)  # as in a configuration
    return tokenizer


def check_pooling(settings: dict[str, Any], file: Path) -> None:
    """Refuses a pooling.json that `Encoder.save` did not write."""
    entries = {"pooling": str, "max_tokens": int, "depths": int} | ({"prefix": str} if "prefix" in settings else {})
    require(settings, entries, file)
    if not (settings.keys() == entries.keys() and settings["pooling"] in POOLINGS and
            0 < settings["depths"] <= MAX_DEPTHS and 0 < settings["max_tokens"] <= MAX_TOKENS and
            len(settings.get("prefix", "")) <= MAX_PREFIX):
        raise ModelError(f"{file} has an unknown pooling; {COPY_OR_RETRAIN}")


def pooling_of(source: str) -> str:
    """The pooling that a sentence-transformers model declares; mean pooling for all others."""
    from transformers.utils import cached_file

    file = cached_file(source, "1_Pooling/config.json", _raise_exceptions_for_missing_entries=False,
                       _raise_exceptions_for_connection_errors=False, local_files_only=Path(source).is_dir())
    if file is None:
        return "mean"
    settings = read_json(Path(file), COPY)
    if "pooling_mode" in settings:
        modes = [settings["pooling_mode"]]
    else:
        names = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens"}
        modes = [mode for mode, key in names.items() if settings.get(key)]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise EncoderError(f"{file} declares a pooling that is not one of {', '.join(POOLINGS)}; use another encoder.")
    return str(modes[0])


def choose_encoder(option: str, texts: Sequence[str], y: np.ndarray, plan: Plan, seed: int) -> tuple[str, Notice]:
    """The best of the candidates for texts with labels y (N, K), NaN where unknown, and why.

    Candidates are those that "auto:..." names, else all of the catalogue that are on this machine, the smallest first.
    """
    names = names_in(option) or [name for name, known in CATALOGUE.items() if find_place(known) is not None]
    if not names:
        return MINILM, Notice("no encoder of the catalogue is here, so --encoder auto takes minilm")
    if len(names) == 1:
        return names[0], Notice(f"--encoder auto takes {names[0]}, the only encoder that is here; `halflabel encoders` "
                                "lists others that can be fetched")
    rows = np.flatnonzero(~np.isnan(y).any(axis=1))
    rows = np.sort(generator(seed, Stream.ENCODER_CHOICE).permutation(rows)[:MAX_TEXTS])
    if len(rows) < 3 or not ((y[rows].sum(axis=0) >= 2).sum() >= 2):
        return names[0], Notice(f"--encoder auto takes {names[0]}: there are too few labels to compare encoders by")
    some, began, scores = [texts[int(i)] for i in rows], time.monotonic(), dict[str, float]()
    for name in names:
        spent, budget = time.monotonic() - began, SHARE * 60 * plan.minutes
        if scores and spent * (len(scores) + 1) / len(scores) > budget:
            break
        encoder = load_encoder(name, plan.max_tokens)
        scores[name] = held_out_score(EncoderCache(cache_folder(), encoder).vectors(some), y[rows])
    best = max(scores, key=lambda name: scores[name])
    compared = ", ".join(f"{name} {score:.3f}" for name, score in scores.items())
    skipped = names[len(scores) :]
    left = (f"; {', '.join(skipped)} would have taken more than {SHARE:.0%} of {plan.minutes:g} minutes"
            if skipped else "")
    return best, Notice(f"--encoder auto takes {best}, which predicts held-out labels best (share of their variance, "
                        f"{len(rows)} labelled texts: {compared}){left}")


def held_out_score(x: np.ndarray, y: np.ndarray) -> float:
    """The share of the variance of labels y (N, K) that vectors x (N, H) predict, each text from all others."""
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    x, n = (x - x.mean(axis=0)).astype(np.float64), len(x)
    values, vectors = np.linalg.eigh(x @ x.T)
    projected, constant = vectors.T @ (y - y.mean(axis=0)), 1.0 / n  # the mean is fitted without the text as well
    errors = []
    for ridge in RIDGES:
        shrunk = np.maximum(values, 0.0) / (np.maximum(values, 0.0) + ridge)
        residual = y - y.mean(axis=0) - vectors @ (shrunk[:, None] * projected)
        leverage = (vectors**2 @ shrunk) + constant
        errors.append(((residual / np.maximum(1.0 - leverage, 1e-6)[:, None]) ** 2).sum())
    total = (((y - y.mean(axis=0)) * n / (n - 1)) ** 2).sum()
    return float(1.0 - min(errors) / total)


def texts_per_second(encoder: TextEncoder, texts: Sequence[str]) -> float:
    """How many of these texts the encoder encodes in a second, once it is warm."""
    encode(encoder, texts[:SMALL])
    began = time.perf_counter()
    encode(encoder, texts)
    return len(texts) / (time.perf_counter() - began)
