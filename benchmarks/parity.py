"""Thresholds, masks and losses against those of USB (`semilearn`), step by step on the same random probabilities.

    pip install --no-deps --target FOLDER semilearn
    python benchmarks/parity.py FOLDER

As a whole the package no longer imports beside current libraries, so its files are loaded one by one, with empty
packages around them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from halflabel.methods.consistency import Fairness, FairThresholds, FlexibleThresholds, SoftWeights
from halflabel.nn.pseudo_labels import FixedThreshold
from halflabel.types import Shape
from protocol import Results

STEPS, TEXTS, BATCH, LABELS, CUTOFF, MOMENTUM = 200, 60, 16, 5, 0.8, 0.9
EMPTY = ("", ".core", ".core.hooks", ".core.utils", ".algorithms", ".algorithms.hooks", ".algorithms.utils",
         ".algorithms.freematch", ".algorithms.flexmatch", ".algorithms.softmatch")


def main() -> None:
    torch.manual_seed(0)
    worst: dict[str, float] = {}
    means: dict[str, float] = {}
    shape = Shape(LABELS, 8, 10, TEXTS)
    fair, truncated = FairThresholds(shape, MOMENTUM), SoftWeights(shape, MOMENTUM, 2.0)
    flexible = {used: FlexibleThresholds(shape, CUTOFF, count_unused=used) for used in (True, False)}
    theirs = usb(Path(sys.argv[1]))

    def note(name: str, ours: Tensor, other: Tensor) -> None:
        worst[name] = max(worst.get(name, 0.0), float((ours - other).abs().max()))
        means[name] = means.get(name, 0.0) + float(ours.mean()) / STEPS

    for _ in range(STEPS):
        rows = torch.randperm(TEXTS)[:BATCH]
        p = (3 * torch.randn(BATCH, LABELS) + torch.tensor([1.0, 0.0, 0.0, 0.0, -0.5])).softmax(dim=1)
        strong = torch.randn(BATCH, LABELS)
        note("fixmatch, mask", FixedThreshold(CUTOFF).label(p).weight, theirs.fixed(p))
        target, mask = fair(rows, lambda p=p: p), theirs.free(p)
        note("freematch, mask", target.weight, mask)
        note("freematch, thresholds", fair.thresholds(), theirs.free_thresholds())
        if mask.sum() > 0:
            note("freematch, fairness loss", Fairness(1.0, fair.expected_shares)(strong, None, target),
                 theirs.fairness(mask, strong))
        note("softmatch, weights after alignment", truncated(rows, lambda p=p: p).weight, theirs.soft(p))
        for used, labeller in flexible.items():
            note(f"flexmatch, mask, {'with' if used else 'without'} the unused", labeller(rows, lambda p=p: p).weight,
                 theirs.flex(used, p, rows))
    results = Results("parity")
    results.file.unlink(missing_ok=True)
    for name, difference in worst.items():
        results.add(what=name, steps=STEPS, largest_difference=difference, mean=means[name], semilearn=theirs.version)
        print(f"{name}: largest difference {difference:.1e}, mean {means[name]:.3f}")


def usb(folder: Path) -> SimpleNamespace:
    """The pieces of USB as functions of probabilities."""
    for name in EMPTY:
        module = ModuleType(f"semilearn{name}")
        module.__path__ = [str(folder / module.__name__.replace(".", "/"))]
        sys.modules[module.__name__] = module
    parts: dict[str, Any] = sys.modules
    parts["semilearn.core.hooks"].Hook = object
    parts["semilearn.algorithms.utils"].concat_all_gather = None
    masking = import_module("semilearn.algorithms.hooks.masking")
    parts["semilearn.algorithms.hooks"].MaskingHook = masking.MaskingHook
    align = import_module("semilearn.algorithms.hooks.dist_align").DistAlignEMAHook(LABELS, MOMENTUM)
    free = import_module("semilearn.algorithms.freematch.utils").FreeMatchThresholdingHook(LABELS, MOMENTUM)
    soft = import_module("semilearn.algorithms.softmatch.utils").SoftMatchWeightingHook(LABELS, 2, MOMENTUM)
    flexmatch = import_module("semilearn.algorithms.flexmatch.utils").FlexMatchThresholdingHook
    flex = {used: flexmatch(TEXTS, LABELS, used) for used in (True, False)}
    text = (folder / "semilearn/algorithms/freematch/freematch.py").read_text()
    losses: dict[str, Any] = {"torch": torch}
    exec(text[text.index("def replace_inf_to_zero") : text.index("@ALGORITHMS")], losses)
    plain = SimpleNamespace(distributed=False, world_size=1, use_quantile=False, clip_thresh=False, p_cutoff=CUTOFF)
    fixed = masking.FixedThresholdingHook()
    return SimpleNamespace(
        fixed=lambda p: fixed.masking(plain, p, softmax_x_ulb=False),
        free=lambda p: free.masking(plain, p, softmax_x_ulb=False),
        free_thresholds=lambda: free.time_p * free.p_model / free.p_model.max(),
        fairness=lambda mask, strong: losses["entropy_loss"](mask, strong, free.p_model, free.label_hist)[0],
        soft=lambda p: soft.masking(plain, align.dist_align(plain, p), softmax_x_ulb=False),
        flex=lambda used, p, rows: flex[used].masking(plain, p, rows, softmax_x_ulb=False),
        version=next(folder.glob("semilearn-*.dist-info")).name.split("-")[1].removesuffix(".dist"))


if __name__ == "__main__":
    main()
