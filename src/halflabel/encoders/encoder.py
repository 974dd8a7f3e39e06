"""A pretrained transformer as a text encoder: tokens to one pooled vector per text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from halflabel.encoders.batching import padded_width
from halflabel.encoders.tokenizer import token_ids
from halflabel.errors import BadInput

DEEPEST, LONGEST = 100, 10**6  # layers and tokens that are pooled, at most
POOLING = "pooling.json"
GROUP = 10  # texts that go through the layers together in a training step on a CPU


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


def half_precision(device: torch.device) -> AbstractContextManager[object]:
    """bf16 products where the processor has them; the plain context elsewhere."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if bf16_products(device) else nullcontext()


def bf16_products(device: torch.device) -> bool:
    """Whether the processor multiplies in bf16 faster than in fp32."""
    if device.type == "cpu":
        able = torch.cpu.get_capabilities()
        return bool(able.get("avx512_bf16") or able.get("amx_bf16"))
    return device.type == "cuda" and torch.cuda.is_bf16_supported()
