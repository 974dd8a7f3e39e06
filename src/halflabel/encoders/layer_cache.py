"""What the frozen lowest layers say of each token: computed once, kept on disk and read as it is needed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from halflabel.atomic import replace_file
from halflabel.encoders.batching import WINDOW, Batch, Window, batches, padded_width, run_workers, worker_count
from halflabel.encoders.encoder import Encoder, half_precision
from halflabel.encoders.inference import threads_for
from halflabel.encoders.inputs import Rng, TokenInputs, lengths, padded
from halflabel.errors import BadInput

BATCH = 32


class HiddenStateInputs(TokenInputs):
    """Padded states (N, T, H) above the frozen layers, and their mask; in training a share of the tokens is dropped."""

    def __init__(self, encoder: Encoder, views: Sequence[Sequence[str]], *, folder: Path, drop: float = 0.0,
                 tokens: Path | None = None) -> None:
        super().__init__(encoder, views, drop=drop, folder=tokens)
        check(encoder, self.tokens[0][:4])
        self.states = [cached_states(encoder, tokens, folder) for tokens in self.tokens]
        self.starts = [starts_of(tokens) for tokens in self.tokens]

    def __call__(self, rows: np.ndarray, views: np.ndarray, rng: Rng = None) -> tuple[Tensor, ...]:
        parts = []
        for row, view in zip(rows, views, strict=True):
            states = self.states[view][self.starts[view][row] : self.starts[view][row + 1]]
            parts.append(states[self.kept(self.tokens[view][row], rng)])
        width = padded_width(max([1, *map(len, parts)]), self.encoder.max_tokens)
        table = torch.zeros((len(parts), width, self.encoder.width))
        mask = torch.zeros((len(parts), width), dtype=torch.int64)
        for i, part in enumerate(parts):
            table[i, : len(part)] = torch.from_numpy(part)
            mask[i, : len(part)] = 1
        return table, mask

    def encoded(self, rows: np.ndarray, encoder: Encoder) -> np.ndarray:
        """Vectors of rows through the layers that learn, (N, H)."""
        vectors = np.empty((len(rows), encoder.width), dtype=np.float32)
        order = np.argsort(-self.lengths[rows], kind="stable")
        device = next(encoder.parameters()).device
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            inputs = (x.to(device) for x in self(rows[places], np.zeros_like(places)))
            with torch.inference_mode(), half_precision(device):
                vectors[places] = encoder(*inputs).float().cpu().numpy()
        return vectors


@torch.inference_mode()
def check(encoder: Encoder, tokens: Sequence[np.ndarray]) -> None:
    """Refuses an encoder whose layers need more than states and a mask, such as biases by position."""
    training, device = encoder.training, next(encoder.parameters()).device
    encoder.eval()
    ids, mask = (x.to(device) for x in padded(tokens, encoder))
    apart = encoder(encoder.below(ids, mask, encoder.frozen_layers), mask)
    same = torch.allclose(apart, encoder(ids, mask), atol=1e-3)
    encoder.train(training)
    if not same:
        raise BadInput(f"The layers of {type(encoder.body).__name__} do not work apart from each other; set "
                       "frozen_layers=0 or use another encoder.")


def starts_of(tokens: Sequence[np.ndarray]) -> np.ndarray:
    """Where the tokens of each text begin when all stand one after the other, and where the last ones end, (N + 1,)."""
    return np.concatenate([[0], np.cumsum(lengths(tokens))])


def cached_states(encoder: Encoder, tokens: Sequence[np.ndarray], folder: Path) -> np.ndarray:
    """States of all tokens, one after the other, (sum of T, H) float16 in a file that is mapped, not read."""
    digest = hashlib.blake2b(f"{encoder.fingerprint()} {encoder.frozen_layers}".encode(), digest_size=16)
    for one in tokens:
        digest.update(len(one).to_bytes(4, "little") + one.tobytes())
    file = folder / f"{digest.hexdigest()}.npy"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with replace_file(file) as temporary:
            _write(encoder, tokens, temporary)
    return np.load(file, mmap_mode="r")


def _windows(tokens: Sequence[np.ndarray]) -> Iterator[Window]:
    """Token ids, wherever they lie, of some texts at a time."""
    for start in range(0, len(tokens), WINDOW):
        yield start, list(tokens[start : start + WINDOW])


def _write(encoder: Encoder, tokens: Sequence[np.ndarray], file: Path) -> None:
    starts = starts_of(tokens)
    states = np.lib.format.open_memmap(file, mode="w+", dtype=np.float16, shape=(int(starts[-1]), encoder.width))
    device = next(encoder.parameters()).device

    def work(batch: Batch) -> None:
        ids, mask = torch.from_numpy(batch.ids).to(device), torch.from_numpy(batch.mask).to(device)
        with torch.inference_mode(), half_precision(device):
            found = encoder.below(ids, mask, encoder.frozen_layers).half().cpu().numpy()
        for row, one in zip(batch.rows, found, strict=True):
            states[starts[row] : starts[row + 1]] = one[: starts[row + 1] - starts[row]]

    training = encoder.training
    encoder.eval()
    workers = worker_count(torch.get_num_threads(), len(tokens)) if device.type == "cpu" else 1
    with threads_for(workers):
        todo = batches(_windows(tokens), padding=encoder.padding)
        run_workers(work, todo, workers=workers, total=len(tokens))
    encoder.train(training)
    states.flush()
