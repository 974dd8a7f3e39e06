"""Smoothing changes nothing in fp32, and reduces the error of int8."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from conftest import tiny_texts
from halflabel.encoders.inputs import padded
from halflabel.encoders.loading import load_encoder
from halflabel.persistence.onnx_export import OUTLIERS, Smoothed, smooth


def quantised(x: Tensor, weight: Tensor) -> Tensor:
    """x W' in int8: one scale for all of x, one for each output of the weights."""
    low, high = x.min().clamp_max(0.0), x.max().clamp_min(0.0)
    step, scale = (high - low) / 255, weight.abs().amax(dim=1, keepdim=True) / 127
    zero = (-low / step).round()
    return (((x / step).round() + zero).clamp(0, 255) - zero) * step @ ((weight / scale).round() * scale).T


def input_with_outliers(one_sided: bool) -> Tensor:
    """512 rows of 64 channels, of which three are far from the others."""
    x = torch.randn(512, 64, generator=torch.Generator().manual_seed(0))
    x = x.abs() if one_sided else x
    x[:, [3, 20]] *= 30.0
    x[:, 40] += 0.0 if one_sided else 25.0
    return x


def calibrated(inputs: int, outputs: int, *, one_sided: bool) -> tuple[nn.Linear, Smoothed, Tensor]:
    torch.manual_seed(1)
    linear, x = nn.Linear(inputs, outputs), input_with_outliers(one_sided)
    return linear, Smoothed(linear, x.amin(dim=0), x.amax(dim=0)), x


@torch.no_grad()
def test_a_smoothed_layer_has_the_same_output() -> None:
    for outputs, one_sided in ((32, True), (32, False), (96, True), (96, False)):
        linear, smoothed, x = calibrated(64, outputs, one_sided=one_sided)
        torch.testing.assert_close(smoothed(x), linear(x), rtol=1e-4, atol=1e-4)
        assert (smoothed.shift is None) == one_sided
        assert len(smoothed.outliers) == (OUTLIERS if outputs < 64 else 0)


@torch.no_grad()
def test_int8_has_a_smaller_error() -> None:
    for outputs in (32, 96):
        linear, smoothed, x = calibrated(64, outputs, one_sided=False)
        z = x * smoothed.inverse + smoothed.shift
        before = (quantised(x, linear.weight) - x @ linear.weight.T).square().mean()
        after = (quantised(z, smoothed.linear.weight) - z @ smoothed.linear.weight.T).square().mean()
        assert after < before / 4


@torch.no_grad()
def test_a_smoothed_encoder_has_the_same_output(tiny_encoder: str) -> None:
    exact = load_encoder(tiny_encoder).eval()
    smoothed = copy.deepcopy(exact)
    tokens = exact.tokens(tiny_texts(4)[0])
    smooth(smoothed, [padded(tokens[:6], exact), padded(tokens[6:], exact)])
    linears = [module for module in exact.modules() if isinstance(module, nn.Linear)]
    assert sum(isinstance(module, Smoothed) for module in smoothed.modules()) == len(linears) > 0
    inputs = padded(tokens, exact)
    torch.testing.assert_close(smoothed(*inputs), exact(*inputs), rtol=1e-4, atol=1e-4)
