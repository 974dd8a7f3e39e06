"""BERT for inference: the same numbers as the class of that name in transformers, without the seconds of its import.

Modules have the names of the weights on disk. There is no dropout, so this class is not for training.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from halflabel.devices import shapes_only

SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
         "max_position_embeddings", "type_vocab_size", "layer_norm_eps")
STANDARD = {"hidden_act": "gelu", "position_embedding_type": "absolute", "is_decoder": False}
SHORT = 128  # tokens, up to which plain attention in bf16 is faster than the fused kernel

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]  # queries, keys, values (N, heads, T, ...), a mask


def is_bert(config: dict[str, Any]) -> bool:
    """Whether a config.json describes this architecture; all others are left to transformers."""
    standard = all(config.get(name, value) == value for name, value in STANDARD.items())
    return config.get("model_type") == "bert" and standard and all(name in config for name in SIZES)


class BertConfig(SimpleNamespace):
    """The entries of a config.json."""

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def save_pretrained(self, folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps(vars(self), indent=2), encoding="utf-8")


class HiddenStates(NamedTuple):
    """Hidden states of the tokens, (N, T, H): the last, and on request those of all layers from the embeddings up."""

    last_hidden_state: Tensor
    hidden_states: tuple[Tensor, ...]


def plain(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q k' / sqrt(d) + mask) v, step by step, with the softmax in fp32; ONNX export needs this form."""
    scores = (q @ k.transpose(2, 3)).float() * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + torch.where(mask, torch.zeros(()), torch.finfo(torch.float32).min)
    return scores.softmax(dim=-1).to(v.dtype) @ v


def fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """The same in one fused kernel, except for short texts in bf16, for which the kernel is slower."""
    if q.dtype == torch.bfloat16 and q.shape[2] <= SHORT and q.device.type == "cpu":
        return plain(q, k, v, mask)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=q.shape[-1] ** -0.5)


class SelfAttention(nn.Module):
    """Multi-head self-attention, (N, T, H) -> (N, T, H)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.query, self.key, self.value = (nn.Linear(config.hidden_size, config.hidden_size) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor | None, attend: Attend) -> Tensor:
        q, k, v = (linear(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for linear in
                   (self.query, self.key, self.value))
        return attend(q, k, v, mask).transpose(1, 2).flatten(2)


class ResidualNorm(nn.Module):
    """A linear layer, a residual connection and layer normalisation."""

    def __init__(self, width: int, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(width, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        y: Tensor = self.LayerNorm(self.dense(x) + residual)
        return y


class FeedForward(nn.Module):
    """The wide linear layer and its activation."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.intermediate_act_fn = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.intermediate_act_fn(self.dense(x))
        return y


class BertLayer(nn.Module):
    """Attention, then a feed-forward network on each token, (N, T, H) -> (N, T, H)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({
            "self": SelfAttention(config), "output": ResidualNorm(config.hidden_size, config)})
        self.intermediate, self.output = FeedForward(config), ResidualNorm(config.intermediate_size, config)

    def forward(self, x: Tensor, mask: Tensor | None, attend: Attend) -> Tensor:
        x = self.attention["output"](self.attention["self"](x, mask, attend), x)
        y: Tensor = self.output(self.intermediate(x), x)
        return y


class Embeddings(nn.Module):
    """Word, position and (constant) token type embeddings, (N, T) -> (N, T, H)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.word_embeddings(ids) + self.token_type_embeddings(torch.zeros_like(ids))
        y: Tensor = self.LayerNorm(x + self.position_embeddings(positions))
        return y


class Bert(nn.Module):
    """Token ids and mask (N, T) to hidden states (N, T, H), with the interface of a transformers model."""

    _supports_sdpa = True

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.encoder = nn.ModuleDict({
            "layer": nn.ModuleList(BertLayer(config) for _ in range(config.num_hidden_layers))})
        self.attend: Attend = plain

    def set_attn_implementation(self, name: str) -> None:
        """`sdpa` is the fused kernel, anything else plain attention."""
        self.attend = fused if name == "sdpa" else plain

    @property
    def device(self) -> torch.device:
        return self.embeddings.word_embeddings.weight.device

    def forward(self, input_ids: Tensor, attention_mask: Tensor, output_hidden_states: bool = False) -> HiddenStates:
        x = self.embeddings(input_ids)
        # without padding there is nothing to mask; a graph that is being traced cannot depend on values
        full = not torch.compiler.is_compiling() and bool(attention_mask.all())
        mask = None if full else attention_mask.bool()[:, None, None, :]
        states, layers = [x], cast(nn.ModuleList, self.encoder["layer"])
        for layer in layers:
            x = layer(x, mask, self.attend)
            if output_hidden_states:
                states.append(x)
        return HiddenStates(x, tuple(states))


def empty_bert(config: dict[str, Any]) -> Bert:
    """A BERT without weights, to which weights are assigned later."""
    with shapes_only():
        return Bert(BertConfig(**config))
