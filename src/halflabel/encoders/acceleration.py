"""Faster forms of a transformer for inference: fused attention, weights cast once to bf16 where that is harmless,
packed linear layers, torch.compile."""

from __future__ import annotations

import copy
import shutil
import warnings
from os import environ
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from halflabel.devices import bf16_products, product_dtype
from halflabel.encoders.batching import TOKENS, pad
from halflabel.encoders.bert import empty_bert, is_bert
from halflabel.encoders.mkldnn_linear import mkldnn_available, use_mkldnn
from halflabel.encoders.text_encoder import Forward
from halflabel.errors import SettingError
from halflabel.notices import NoticeWarning

if TYPE_CHECKING:
    from halflabel.encoders.encoder import Encoder

PROBE = 8  # texts on which bf16 is compared with fp32
HARMLESS = 0.999  # smallest cosine at which a bf16 vector counts as equal to that in fp32
SHAPES = 64  # of batches in bf16 on a CPU; torch keeps about 2 MB of kernels for each until the process ends
SHORT = 128  # tokens, below which padding a text to a multiple of 8 would take noticeably longer

# One copy per encoder, dtype and layout, valid while the weights are unchanged; and the cosine that its check gave.
_COPIES: WeakKeyDictionary[Encoder, dict[tuple[torch.dtype, bool], tuple[object, Encoder]]] = WeakKeyDictionary()
_COSINES: WeakKeyDictionary[Encoder, float] = WeakKeyDictionary()
_COMPILED: WeakKeyDictionary[Encoder, Forward] = WeakKeyDictionary()
_shapes: set[tuple[int, ...]] = set()  # of the batches so far


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


def few_shapes(forward: Forward, *, padding: int, max_tokens: int) -> Forward:
    """The same function, but after SHAPES different shapes, new ones are rounded up: texts are repeated and padded.

    Otherwise the memory of a server would grow as long as requests of other sizes arrive. Full batches of short texts,
    of which large jobs consist, are left as they are: there is one for each width.
    """
    def rounded(ids: Tensor, mask: Tensor) -> Tensor:
        n, width = shape = tuple(ids.shape)
        if len(_shapes) < SHAPES:
            _shapes.add(shape)
        if shape in _shapes or (width < SHORT and (n + 1) * width > TOKENS):
            return forward(ids, mask)
        rows = torch.arange(_rounded_count(n), device=ids.device).clamp_max(n - 1)
        more = max(0, min(_rounded_width(width), max_tokens) - width)
        return forward(nn.functional.pad(ids[rows], (0, more), value=padding),
                       nn.functional.pad(mask[rows], (0, more)))[:n]

    return rounded


def _rounded_count(texts: int) -> int:
    """The next multiple of 8; of few texts the next power of two."""
    return -(-texts // 8) * 8 if texts > 4 else 4 if texts == 3 else texts


def _rounded_width(width: int) -> int:
    """The next multiple of 8; beyond 256, one of 16 widths between two powers of two."""
    step = max(8, (1 << (width - 1).bit_length()) // 32)
    return -(-width // step) * step


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
