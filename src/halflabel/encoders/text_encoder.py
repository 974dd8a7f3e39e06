"""The interface of encoders: texts to token ids, token ids to one vector per text.

To add an architecture, subclass `TextEncoder` and register how it is restored in `loading.RESTORERS`, under a file that
its `save` writes. Nothing else in the package asks which architecture an encoder has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from halflabel.devices import Compute
from halflabel.errors import EncoderError

Backend = Literal["torch", "compile"]
Forward = Callable[[Tensor, Tensor], Tensor]  # token ids and mask (N, T) to vectors (N, H)


class TextEncoder(nn.Module):
    """Token ids and mask (N, T) to one vector per text, (N, H)."""

    max_tokens: int  # longer texts are truncated
    frozen_layers: int = 0  # lowest layers that are not trained, so that their outputs can be cached
    precision: torch.dtype | None = None  # of products; by default bf16 if the hardware has it and it does no harm

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.parameters()).device

    def on(self, compute: Compute) -> Self:
        """The encoder itself, moved to a device."""
        for part in self.parts:
            part.precision = compute.precision
        return self.to(compute.device)

    @property
    def width(self) -> int:
        """H, the width of a vector."""
        raise AssertionError("every encoder defines its width")

    @property
    def parts(self) -> Sequence[TextEncoder]:
        """The encoders whose vectors `join` puts together; only this one, unless several are joined."""
        return [self]

    def join(self, vectors: Sequence[np.ndarray]) -> np.ndarray:
        """The vectors of texts (N, H) from those of the parts."""
        return vectors[0]

    def vocabulary(self) -> list[str]:
        """Whole words of its vocabulary, the most frequent first if the tokenizer has them so."""
        return []

    @property
    def padding(self) -> int:
        """The token id of padding."""
        raise AssertionError("every encoder defines its padding")

    @property
    def special(self) -> frozenset[int]:
        """Token ids that are not part of the text, such as [CLS]; they are never dropped as noise."""
        raise AssertionError("every encoder defines its special tokens")

    def tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Token ids of each text as int32, truncated, special tokens included."""
        raise AssertionError("every encoder has a tokenizer")

    def fingerprint(self) -> str:
        """A hash of everything that a text's vector depends on; it names the folder of cached vectors."""
        raise AssertionError("every encoder has a fingerprint")

    def tokenizer_fingerprint(self) -> str:
        """A hash of everything that a text's token ids depend on; it names the folder of cached token ids."""
        raise AssertionError("every encoder has a tokenizer fingerprint")

    def save(self, folder: Path) -> None:
        """Writes everything but the weights, which are saved with the model's other tensors."""
        raise AssertionError("every encoder can be saved")

    def inference_forward(self, tokens: list[np.ndarray], *, backend: Backend, dtype: torch.dtype | None,
                          few: bool) -> Forward:
        """The fastest forward pass for a job that starts with these texts; a `dtype` prescribes the precision.

        `few` says that the job is too small to prepare anything for it.
        """
        return self

    @property
    def layers(self) -> Any:
        """The layers from the bottom up, for encoders of which the lowest can be frozen."""
        raise EncoderError(f"The layers of {type(self).__name__} cannot be frozen one by one; set frozen_layers=0.")

    def freeze_layers(self, number: int) -> None:
        """Stops training the word embeddings and the lowest layers."""
        self.frozen_layers = number
        self.layers[:number].requires_grad_(False)

    def frozen_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Hidden states above the frozen layers, (N, T, H); `forward` accepts them in place of token ids."""
        raise EncoderError(f"{type(self).__name__} has no hidden states; set frozen_layers=0.")
