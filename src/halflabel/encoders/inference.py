"""Vectors of many texts: weights cast once, bf16 where it is harmless, workers that share one copy of them."""

from __future__ import annotations

import copy
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from os import environ
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from halflabel.encoders.bag_of_words import BagOfWords
from halflabel.encoders.batching import TOKENS, Batch, Window, batches, pad, run_workers, windows, worker_count
from halflabel.encoders.bert import empty_bert, is_bert
from halflabel.encoders.encoder import Encoder, bf16_products
from halflabel.encoders.mkldnn_linear import mkldnn_available, use_mkldnn
from halflabel.errors import BadInput
from halflabel.types import Progress

SMALL = 32  # texts: fewer are encoded in fp32, since a cast copy and its check would take longer
PROBE = 8  # texts on which bf16 is compared with fp32
HARMLESS = 0.999  # smallest cosine at which a vector counts as the same
GPU_TOKENS = 32_768  # in a batch
NUMBERS = 2**24  # that the vectors of many texts may hold at a time: a bag of words is wide

Backend = Literal["torch", "compile"]
Forward = Callable[[Tensor, Tensor], Tensor]


def encode(encoder: Encoder | BagOfWords, texts: Sequence[str], progress: Progress | None = None, *,
           backend: Backend = "torch", dtype: torch.dtype | None = None, alike: bool = False) -> np.ndarray:
    """Vectors of texts, (N, H) float32; `dtype` forbids the choice between bf16 and fp32.

    A few texts are encoded in fp32, unless they are to be `alike`, whatever their number.
    """
    if isinstance(encoder, BagOfWords):
        return _count(encoder, windows(encoder.tokens, texts), len(texts), progress)
    return _encode(encoder, windows(encoder.tokens, texts), len(texts), progress, backend, dtype, alike=alike)


def encode_tokens(encoder: Encoder | BagOfWords, tokens: list[np.ndarray]) -> np.ndarray:
    """Vectors of texts whose token ids are known, (N, H) float32."""
    if isinstance(encoder, BagOfWords):
        return _count(encoder, [(0, tokens)], len(tokens), None)
    return _encode(encoder, [(0, tokens)], len(tokens), None, "torch", None)


def texts_at_once(width: int, limit: int) -> int:
    """How many texts, at most `limit`, may have vectors of that width in memory at the same time."""
    return max(1, min(limit, NUMBERS // width))


@torch.inference_mode()
def _count(bag: BagOfWords, found: Iterable[Window], total: int, progress: Progress | None) -> np.ndarray:
    """What a bag of words gives, which has no products to make faster: a few texts at a time, in fp32."""
    vectors = np.empty((total, bag.width), dtype=np.float32)
    for first, tokens in found:
        for start in range(0, len(tokens), SMALL):
            part = tokens[start : start + SMALL]
            inputs = pad(part, max([1, *map(len, part)]), bag.padding)
            ids, mask = (torch.from_numpy(x).to(bag.idf.device) for x in inputs)
            vectors[first + start : first + start + len(part)] = bag(ids, mask).cpu().numpy()
            if progress:
                progress(first + start + len(part), total)
    return vectors


def _encode(encoder: Encoder, found: Iterable[Window], total: int, progress: Progress | None,
            backend: Backend, dtype: torch.dtype | None, *, alike: bool = False) -> np.ndarray:
    vectors = np.empty((total, encoder.width), dtype=np.float32)
    device = next(encoder.parameters()).device
    gpu = device.type != "cpu"
    workers = 1 if gpu or backend == "compile" else worker_count(torch.get_num_threads(), total)
    found = iter(found)
    first = next(found, (0, []))
    few = total < SMALL and not alike
    forward = compiled(encoder, dtype) if backend == "compile" else chosen(encoder, first[1], dtype, few=few)

    def work(batch: Batch) -> None:
        ids, mask = torch.from_numpy(batch.ids).to(device), torch.from_numpy(batch.mask).to(device)
        with torch.inference_mode():
            vectors[batch.rows] = forward(ids, mask).cpu().numpy()

    todo = batches(chain([first], found), padding=encoder.padding, tokens=GPU_TOKENS if gpu else TOKENS)
    with threads_for(workers):
        run_workers(work, todo, workers=workers, total=total, progress=progress)
    return vectors


@contextmanager
def threads_for(workers: int) -> Iterator[None]:
    """torch's threads, dealt out to the workers for as long as the context lasts."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // workers))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def chosen(encoder: Encoder, tokens: list[np.ndarray], dtype: torch.dtype | None, *, few: bool) -> Forward:
    """The encoder to use: in bf16 for a job that is worth it, if the processor has it and these texts allow it."""
    exact = for_inference(encoder, torch.float32)
    if dtype is not None or few or not bf16_products(next(encoder.parameters()).device):
        return exact if dtype in (None, torch.float32) else for_inference(encoder, dtype)
    half = for_inference(encoder, torch.bfloat16)
    if half not in _CHECKED:
        _CHECKED[half] = cosine = lowest_cosine(half, exact, tokens)
        if cosine < HARMLESS:
            warnings.warn(f"bf16 changes this encoder's vectors (cosine {cosine:.4f} to fp32, wanted {HARMLESS}); "
                          "encoding in fp32, which is slower", stacklevel=2)
    return half if _CHECKED[half] >= HARMLESS else exact


def lowest_cosine(half: Encoder, exact: Encoder, tokens: list[np.ndarray]) -> float:
    """How far bf16 turns the vectors of a few texts, spread over those given."""
    few = [tokens[i] for i in np.linspace(0, len(tokens) - 1, PROBE).astype(int)]
    device = next(exact.parameters()).device
    inputs = [torch.from_numpy(x).to(device) for x in pad(few, max(map(len, few)), exact.padding)]
    with torch.inference_mode():
        return float(nn.functional.cosine_similarity(half(*inputs), exact(*inputs)).min())


# One copy for each encoder and type, for as long as its weights stay as they were; and what its check gave.
_COPIES: WeakKeyDictionary[Encoder, dict[tuple[torch.dtype, bool], tuple[object, Encoder]]] = WeakKeyDictionary()
_CHECKED: WeakKeyDictionary[Encoder, float] = WeakKeyDictionary()
_COMPILED: WeakKeyDictionary[Encoder, Forward] = WeakKeyDictionary()


def for_inference(encoder: Encoder, dtype: torch.dtype, *, packed: bool = True) -> Encoder:
    """The encoder with fused attention and weights of that type, cast once; fp32 weights are shared, not copied."""
    stamp = [(p.data_ptr(), p._version) for p in encoder.parameters()]
    known = _COPIES.setdefault(encoder, {})
    kind = (dtype, packed and dtype == torch.bfloat16 and encoder.body.device.type == "cpu" and mkldnn_available())
    if kind not in known or known[kind][0] != stamp:
        with torch.inference_mode(False):
            known[kind] = (stamp, _twin(encoder, *kind))
    return known[kind][1]


def _twin(encoder: Encoder, dtype: torch.dtype, packed: bool) -> Encoder:
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
    twin = Encoder(body, encoder.tokenizer, pooling=encoder.pooling, max_tokens=encoder.max_tokens,
                   depths=encoder.depths)
    return twin.eval()


def compiled(encoder: Encoder, dtype: torch.dtype | None) -> Forward:
    """The encoder through torch.compile, which needs a C++ compiler and about a minute."""
    device = next(encoder.parameters()).device
    names = [name for name in (environ.get("CXX"), "g++", "clang++", "cl") if name]
    if device.type == "cpu" and not any(map(shutil.which, names)):
        raise BadInput("the backend 'compile' needs a C++ compiler and finds none; install one or use --backend torch.")
    half = torch.bfloat16 if bf16_products(device) else torch.float32
    twin = for_inference(encoder, dtype or half, packed=False)
    if twin not in _COMPILED:
        _COMPILED[twin] = torch.compile(twin.forward, dynamic=True)
    return _COMPILED[twin]
