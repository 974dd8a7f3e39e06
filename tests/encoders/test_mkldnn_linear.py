"""Canary for private operators of torch: fails when a new version removes or changes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import halflabel
from halflabel.encoders.encoder import for_inference
from halflabel.encoders.inputs import padded
from halflabel.encoders.loading import load_encoder
from halflabel.encoders.mkldnn_linear import MkldnnLinear, mkldnn_available, use_mkldnn

ARGUMENTS = {
    "_reorder_linear_weight": ["self", "batch_size"],
    "_linear_pointwise": ["X", "W", "B", "attr", "scalars", "algorithm"],
}
needs_mkldnn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of torch has no oneDNN")


@needs_mkldnn
@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_private_operators_are_as_they_were(name: str) -> None:
    schema = getattr(torch.ops.mkldnn, name).default._schema
    assert [argument.name for argument in schema.arguments] == ARGUMENTS[name] and len(schema.returns) == 1
    assert mkldnn_available()


@needs_mkldnn
@pytest.mark.parametrize("activation", ["none", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
@torch.inference_mode()
def test_a_packed_layer_computes_the_same(activation: str, bias: bool) -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(32, 48, bias=bias).bfloat16(), torch.randn(2, 5, 32).bfloat16()
    expected = linear(x) if activation == "none" else nn.functional.gelu(linear(x))
    torch.testing.assert_close(MkldnnLinear(linear, activation)(x), expected, rtol=0.02, atol=0.02)


@needs_mkldnn
def test_all_linear_layers_of_a_bert_are_packed(tiny_encoder: str) -> None:
    encoder = load_encoder(tiny_encoder).eval()
    plain = for_inference(encoder, torch.bfloat16, packed=False)
    packed = for_inference(encoder, torch.bfloat16, packed=False).with_body(plain.body)
    inputs = padded(encoder.tokens(["goal match win", "bread"]), encoder)
    with torch.inference_mode():
        expected = plain(*inputs)
        use_mkldnn(packed.body)
        assert not any(type(layer) is nn.Linear for layer in packed.modules())
        torch.testing.assert_close(packed(*inputs), expected, rtol=0.05, atol=0.05)


def test_private_operators_are_called_in_one_file_only() -> None:
    package = Path(halflabel.__file__).parent
    assert [file.name for file in package.rglob("*.py") if "torch.ops" in file.read_text(encoding="utf-8")] == [
        "mkldnn_linear.py"]
