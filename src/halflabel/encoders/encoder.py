"""A pretrained transformer as a text encoder: tokens to one pooled vector per text; and its faster forms for inference:
fused attention, weights cast once to bf16 where that is harmless, packed linear layers, torch.compile.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from os import environ
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from halflabel.atomic import rust_os_error
from halflabel.devices import bf16_products, product_dtype
from halflabel.encoders.bert import empty_bert, is_bert
from halflabel.encoders.mkldnn_linear import mkldnn_available, use_mkldnn
from halflabel.encoders.text_encoder import Backend, Forward, TextEncoder
from halflabel.encoders.tokens import Tokenizer, pad, padded_width, token_ids, whole_words
from halflabel.errors import SettingError
from halflabel.notices import NoticeWarning

POOLING_FILE = "pooling.json"
LAYERS = ("encoder.layer", "transformer.layer", "layers")  # names that transformers gives the list of layers
GROUP = 10  # texts that pass through the layers together in a training step on a CPU
PROBE = 8  # texts on which bf16 is compared with fp32
HARMLESS = 0.999  # smallest cosine at which a bf16 vector counts as equal to that in fp32
# One copy per encoder, dtype and layout, valid while the weights are unchanged; and the cosine that its check gave.
_COPIES: WeakKeyDictionary[Encoder, dict[tuple[torch.dtype, bool], tuple[object, Encoder]]] = WeakKeyDictionary()
_COSINES: WeakKeyDictionary[Encoder, float] = WeakKeyDictionary()
_COMPILED: WeakKeyDictionary[Encoder, Forward] = WeakKeyDictionary()


def pool(states: Tensor, mask: Tensor, how: str) -> Tensor:
    """Pools hidden states (N, T, H) to (N, H), ignoring padding."""
    if how == "cls":
        return states[:, 0]
    real = mask[:, :, None].to(states.dtype)
    if how == "max":
        return states.masked_fill(real == 0, -torch.inf).amax(dim=1)
    return (states * real).sum(dim=1) / real.sum(dim=1).clamp_min(1.0)


def trimmed(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs without the columns that are padding in every text, up to the next multiple of 8."""
    width = padded_width(int(mask.sum(dim=1).max()), mask.shape[1])
    return ids[:, :width], mask[:, :width]


class Encoder(TextEncoder):
    """A transformer of the Hugging Face interface (`body`) with its tokenizer, pooled over real tokens only.

    With `depths` above 1, hidden states of that many evenly spaced layers are pooled and concatenated, the last layer
    last. The `prefix` is put before every text, for encoders that were trained with one.
    """

    def __init__(self, body: Any, tokenizer: Any, *, pooling: str = "mean", max_tokens: int = 256,
                 depths: int = 1, prefix: str = "") -> None:
        super().__init__()
        if getattr(body, "pooler", None) is not None:
            body.pooler = None  # a dense layer on [CLS] that is not used here
        self.body: Any = body
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.depths = depths
        self.prefix = prefix
        self.max_tokens = min(max_tokens, getattr(body.config, "max_position_embeddings", max_tokens))

    def with_body(self, body: Any) -> Encoder:
        """The same encoder around another body."""
        return Encoder(body, self.tokenizer, pooling=self.pooling, max_tokens=self.max_tokens, depths=self.depths,
                       prefix=self.prefix)

    @property
    def width(self) -> int:
        return self.depths * int(self.body.config.hidden_size)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Vectors of token ids (N, T), (N, H)."""
        return self._grouped(ids, mask, lambda x, real: self._pooled(real, input_ids=x))

    def from_embeddings(self, e: Tensor, mask: Tensor) -> Tensor:
        """Vectors of word embeddings (N, T, H) instead of token ids, (N, H)."""
        return self._grouped(e, mask, lambda x, real: self._pooled(real, inputs_embeds=x))

    def embeddings(self, ids: Tensor) -> Tensor:
        """Word embeddings before positions are added, (N, T) -> (N, T, H)."""
        e: Tensor = self.body.get_input_embeddings()(ids)
        return e

    def _grouped(self, x: Tensor, mask: Tensor, vectors: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Vectors (N, H); a training step on a CPU splits them into groups of similar length to save padding."""
        if not self.training or x.device.type != "cpu" or len(x) <= GROUP:
            return vectors(x, mask)
        order = mask.sum(dim=1).argsort(stable=True)
        parts = [vectors(*trimmed(x[rows], mask[rows])) for rows in order.split(GROUP)]
        return torch.cat(parts)[order.argsort()]

    def _pooled(self, mask: Tensor, **inputs: Tensor) -> Tensor:
        if self.depths == 1:
            states = [self.body(attention_mask=mask, **inputs).last_hidden_state]
        else:
            output = self.body(attention_mask=mask, output_hidden_states=True, **inputs)
            layers = len(output.hidden_states) - 1
            states = [output.hidden_states[-(-layers * j // self.depths)] for j in range(1, self.depths)]
            states.append(output.last_hidden_state)
        return torch.cat([pool(state.float(), mask, self.pooling) for state in states], dim=1)

    @property
    def layers(self) -> Sequence[nn.Module]:
        modules: dict[str, Any] = dict(self.body.named_modules())
        return next((modules[name] for name in LAYERS if name in modules), ())

    def freeze_layers(self, number: int) -> None:
        super().freeze_layers(number)
        self.body.embeddings.requires_grad_(False)

    def inference_forward(self, tokens: list[np.ndarray], *, backend: Backend, dtype: torch.dtype | None,
                          few: bool) -> Forward:
        if backend == "compile":
            return compiled_forward(self, dtype)
        return faster_form(self, tokens, dtype, few=few)

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        return token_ids(self.tokenizer, texts, self.max_tokens, self.prefix)

    def vocabulary(self) -> list[str]:
        return whole_words(self.tokenizer)

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
        depths = f" {self.depths}" if self.depths > 1 else ""
        digest = hashlib.blake2b(f"{self.pooling} {self.max_tokens}{depths}{self.prefix}".encode(), digest_size=16)
        for name, tensor in sorted(self.body.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def tokenizer_fingerprint(self) -> str:
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        content = self.tokenizer.get_vocab() if backend is None else json.loads(backend.to_str())
        content |= {} if backend is None else {"truncation": None, "padding": None}  # left there by the last call
        content = json.dumps(content, sort_keys=True)
        return hashlib.blake2b(f"{self.max_tokens}{self.prefix} {content}".encode(), digest_size=16).hexdigest()

    def save(self, folder: Path) -> None:
        self.body.config.save_pretrained(folder)
        if not isinstance(self.tokenizer, Tokenizer) and hasattr(self.tokenizer, "backend_tokenizer"):
            self.tokenizer.backend_tokenizer.no_truncation()  # files do not depend on whether a text was tokenized
        try:
            self.tokenizer.save_pretrained(folder)
        except Exception as error:  # tokenizers raises nothing more specific
            raise rust_os_error(error) from error
        settings = {"pooling": self.pooling, "max_tokens": self.max_tokens, "depths": self.depths}
        settings |= {"prefix": self.prefix} if self.prefix else {}  # older versions know no prefix
        (folder / POOLING_FILE).write_text(json.dumps(settings), encoding="utf-8")


def faster_form(encoder: Encoder, tokens: list[np.ndarray], dtype: torch.dtype | None, *, few: bool) -> Encoder:
    """The encoder to use: in bf16 if the job is worth it, the hardware supports it and these texts show no harm."""
    exact, dtype = for_inference(encoder, torch.float32), dtype or encoder.precision
    if dtype is not None or few or not bf16_products(encoder.device):
        return exact if dtype in (None, torch.float32) else for_inference(encoder, dtype)
    half = for_inference(encoder, torch.bfloat16)
    if half not in _COSINES:
        _COSINES[half] = cosine = lowest_cosine(half, exact, tokens)
        if cosine < HARMLESS:
            warnings.warn(NoticeWarning(f"bf16 changes this encoder's vectors (cosine {cosine:.4f} to fp32, below "
                                        f"{HARMLESS}); encoding in fp32, which is slower"), stacklevel=2)
    return half if _COSINES[half] >= HARMLESS else exact


def lowest_cosine(half: Encoder, exact: Encoder, tokens: list[np.ndarray]) -> float:
    """The smallest cosine between bf16 and fp32 vectors over a few texts, spread evenly over the given ones."""
    sample = [tokens[i] for i in np.linspace(0, len(tokens) - 1, PROBE).astype(int)]
    inputs = [torch.from_numpy(x).to(exact.device) for x in pad(sample, max(map(len, sample)), exact.padding)]
    with torch.inference_mode():
        return float(nn.functional.cosine_similarity(half(*inputs), exact(*inputs)).min())


def for_inference(encoder: Encoder, dtype: torch.dtype, *, packed: bool = True) -> Encoder:
    """The encoder with fused attention and weights of that type, cast once; fp32 weights are shared, not copied."""
    version = [(p.data_ptr(), p._version) for p in encoder.parameters()]
    copies = _COPIES.setdefault(encoder, {})
    kind = (dtype, packed and dtype == torch.bfloat16 and encoder.device.type == "cpu" and mkldnn_available())
    if kind not in copies or copies[kind][0] != version:
        with torch.inference_mode(False):
            copies[kind] = (version, _copy(encoder, *kind))
    return copies[kind][1]


def _copy(encoder: Encoder, dtype: torch.dtype, packed: bool) -> Encoder:
    cast = {id(p): nn.Parameter(p.detach().to(dtype), requires_grad=False) for p in encoder.body.parameters()}
    config = encoder.body.config.to_dict()
    if is_bert(config):
        body: Any = empty_bert(config)
        body.load_state_dict({name: cast[id(p)] for name, p in encoder.body.named_parameters()}, assign=True)
    else:
        body = copy.deepcopy(encoder.body, memo=cast)
    if getattr(body, "_supports_sdpa", False):
        body.set_attn_implementation("sdpa")
    if packed:
        use_mkldnn(body)
    return encoder.with_body(body).eval()


def compiled_forward(encoder: Encoder, dtype: torch.dtype | None) -> Forward:
    """The encoder through torch.compile, which needs a C++ compiler and about a minute."""
    names = [name for name in (environ.get("CXX"), "g++", "clang++", "cl") if name]
    if encoder.device.type == "cpu" and not any(map(shutil.which, names)):
        raise SettingError("The backend 'compile' needs a C++ compiler, and none was found; install one or use "
                           "--backend torch.")
    fused = for_inference(encoder, dtype or product_dtype(encoder.device, encoder.precision), packed=False)
    if fused not in _COMPILED:
        _COMPILED[fused] = torch.compile(fused.forward, dynamic=True)
    return _COMPILED[fused]
