"""A trained model as one ONNX graph: encoder, pooling, head, balanced angles and decision; and SmoothQuant for int8.

Before activations are quantised to int8 with one scale per batch, they are evened out: a few channels with large values
would leave few int8 steps to all others. So each input channel is divided by a factor with which its weights are
multiplied, which changes nothing in fp32 (after SmoothQuant, Xiao et al., 2023). Channels that are not centred are
shifted, and the bias compensates. In layers that narrow, the channels with the largest values stay in fp32 (after
LLM.int8(), Dettmers et al., 2022): there they cost little.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import math
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import cast, get_args

import numpy as np
import torch
from torch import Tensor, nn

from halflabel import __version__
from halflabel.atomic import cache_folder, rust_os_error, write_folder, write_text
from halflabel.cache_limit import in_use
from halflabel.encoders.encoder import Encoder
from halflabel.encoders.inference import encode
from halflabel.encoders.inputs import padded
from halflabel.encoders.text_encoder import Backend
from halflabel.encoders.tokens import TOKENIZER_FILE
from halflabel.equations import probabilities
from halflabel.errors import HalflabelError, MissingExtra, ModelError, OutputError
from halflabel.integrity import write_checksums
from halflabel.methods.bdd import BalancedAngles, FixedBalance
from halflabel.persistence.model import TrainedModel
from halflabel.persistence.model_folder import write_neighbours, write_words
from halflabel.persistence.onnx_model import (
    DESCRIPTION,
    FORMAT,
    GRAPH,
    WITHOUT_NEIGHBOURS,
    WITHOUT_PREFIX,
    WITHOUT_WORDS,
    OnnxModel,
)

OUTPUTS = ["vectors", "scores", "probabilities", "label"]  # the last two only of multi-class models
OPSET = 20
CALIBRATION_TEXTS = 256  # that activations are smoothed on before they are quantised
CALIBRATION_BATCH = 32
TOLERANCE = 1e-3  # largest difference of a probability that fp32 rounding explains
STRENGTH = 0.8  # SmoothQuant's alpha; high, since weights have a scale per output
OUTLIERS = 8  # channels that stay in fp32
ONE_SIDED = 0.25  # |minimum| to maximum: below it the input comes from an activation function, whose zero is kept


class Graph(nn.Module):
    """Token ids and mask (N, T) to vectors (N, H), scores (N, K), probabilities (N, K) and label columns (N,).

    Graphs of multi-label models end with the scores, since the decision is applied afterwards and can be changed.
    """

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(transformer_of(model)).float().eval()
        self.multi_label = model.task == "multi-label"
        self.temperature = model.temperature
        self.head = copy.deepcopy(model.network.head).eval()
        angles = model.network.angles
        self.angles = FixedBalance(angles) if isinstance(angles, BalancedAngles) else angles

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        h = self.encoder(ids, mask)
        scores = self.angles(self.head(self.head.features(h)))
        if self.multi_label:
            return h, scores
        p = probabilities(scores / self.temperature)
        return h, scores, p, p.argmax(dim=1)


@dataclass(frozen=True)
class Parity:
    """How an export differs from the model in fp32 on the same texts."""

    texts: int
    scores: float  # largest difference
    probabilities: float  # largest difference
    cosine: float  # smallest, of the vectors
    same_labels: float  # share of the texts

    def to_json(self) -> dict[str, float]:
        return {"texts": self.texts, "max_score_difference": self.scores,
                "max_probability_difference": self.probabilities, "min_cosine": self.cosine,
                "same_labels": self.same_labels}


def export(model: TrainedModel, folder: Path, texts: Sequence[str], *, int8: bool = False) -> Parity:
    """Writes a new export folder, after its predictions on the texts have been compared with the model's."""
    encoder = _check(model, folder)
    differences: list[Parity] = []

    def fill(place: Path) -> None:
        try:
            encoder.tokenizer.backend_tokenizer.save(str(place / TOKENIZER_FILE))
        except Exception as error:  # tokenizers raises nothing more specific
            raise rust_os_error(error) from error
        write_graph(model, place / GRAPH, texts[:CALIBRATION_TEXTS] if int8 else ())
        if model.words is not None:
            write_words(place, model.words)
        if model.neighbours is not None:
            write_neighbours(place, model.neighbours)
        facts = {"format": format_of(model), "halflabel": __version__,
                 "method": model.method, "task": model.task, "classes": model.classes.to_json(),
                 "max_tokens": encoder.max_tokens, "padding": encoder.padding, "int8": int8,
                 "matrix": bool(model.facts.get("matrix")),
                 "decision": model.rules.to_json() if model.task == "multi-label" else "argmax"}
        facts |= {"prefix": encoder.prefix} if encoder.prefix else {}
        facts |= {"temperature": model.temperature} if model.words is not None else {}
        write_text(place / DESCRIPTION, json.dumps(facts, indent=1, ensure_ascii=False))
        difference = parity(model, OnnxModel(place), texts)
        facts["parity"] = difference.to_json()
        write_text(place / DESCRIPTION, json.dumps(facts, indent=1, ensure_ascii=False))
        if not all(map(math.isfinite, difference.to_json().values())):
            raise ModelError("The model or its export has scores that are not finite numbers; train the model again.")
        if not int8 and difference.probabilities > TOLERANCE:
            raise ModelError(f"The exported graph differs from the model (probabilities by up to "
                             f"{difference.probabilities:.2g}), so this encoder cannot be exported; use the model "
                             "itself.")
        write_checksums(place)
        differences.append(difference)

    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    write_folder(folder, fill)
    return differences[0]


def format_of(model: TrainedModel) -> int:
    """The oldest format that has all that the predictions of a model depend on."""
    if model.words is not None:
        return WITHOUT_NEIGHBOURS if model.neighbours is None else FORMAT
    return WITHOUT_WORDS if transformer_of(model).prefix else WITHOUT_PREFIX


def parity(model: TrainedModel, exported: OnnxModel, texts: Sequence[str]) -> Parity:
    """Compares the predictions of an export with those of the model in fp32."""
    h = encode(model.encoder, texts, dtype=torch.float32)
    scores = model.classify(h, texts).scores
    if model.task == "multi-label":
        p, decided = model.rules.probabilities(scores.numpy()), model.rules(scores.numpy())
    else:
        p = probabilities(scores.double() / model.temperature).numpy()
        decided = p.argmax(axis=1)
    vectors = exported.vectors(texts)
    cosine = (vectors * h).sum(axis=1) / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(h, axis=1))
    same = np.mean([a == b for a, b in zip(exported.predict(texts), model.classes.names_of(decided), strict=True)])
    return Parity(len(texts), float(np.abs(exported.scores(texts) - scores.numpy()).max()),
                  float(np.abs(exported.probabilities(texts) - p).max()), float(cosine.min()), float(same))


def write_graph(model: TrainedModel, file: Path, texts: Sequence[str] = ()) -> None:
    """Writes the graph as one ONNX file; with texts to calibrate on, the encoder's matrix products are in int8."""
    graph = Graph(model)
    if texts:
        tokens = graph.encoder.tokens(texts)
        starts = range(0, len(texts), CALIBRATION_BATCH)
        smooth(graph.encoder, (padded(tokens[i : i + CALIBRATION_BATCH], graph.encoder) for i in starts))
    example = torch.ones((2, 16), dtype=torch.int64)
    sizes = {0: torch.export.Dim("texts"), 1: torch.export.Dim("tokens", max=graph.encoder.max_tokens)}
    outputs = OUTPUTS[:2] if graph.multi_label else OUTPUTS
    with no_warnings(), torch.inference_mode(False), torch.no_grad():
        program = torch.onnx.export(graph, (example, example.clone()), dynamo=True, opset_version=OPSET,
                                    input_names=["ids", "mask"], output_names=outputs, verbose=False,
                                    dynamic_shapes={"ids": sizes, "mask": sizes})
    assert program is not None
    if not texts:
        program.save(str(file), external_data=False)
        return
    full = file.with_name("full.onnx")
    program.save(str(full), external_data=False)
    with no_warnings():
        _quantise(full, file, graph.encoder.width // graph.encoder.depths)
    full.unlink()


@contextmanager
def no_warnings() -> Iterator[None]:
    """Suppresses warnings of the exporter about optional packages and deprecations of its own."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _quantise(full: Path, file: Path, width: int) -> None:
    """Quantises weights statically and activations dynamically; products narrower than the encoder are the head's."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(str(full))
    graph = model.graph
    graph.ClearField("value_info")  # the exporter leaves shapes of weights there that it has since transposed
    onnx.save(model, str(full))
    shapes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    wide = [node.name for node in graph.node
            if node.op_type == "MatMul" and min(shapes.get(node.input[1], [0])) >= width]
    quantize_dynamic(full, file, op_types_to_quantize=["MatMul"], nodes_to_quantize=wide, per_channel=True,
                     weight_type=QuantType.QInt8, extra_options={"MatMulConstBOnly": True})


def with_backend(model: TrainedModel, backend: str, texts: Sequence[str]) -> TrainedModel | OnnxModel:
    """The model with another backend; an ONNX graph is exported once and cached."""
    transformer_of(model)
    if backend in get_args(Backend):
        return replace(model, backend=cast(Backend, backend))
    folder = cache_folder() / "onnx" / f"{_fingerprint(model)}-{backend}"

    def exported() -> None:
        try:
            export(model, folder, texts, int8=backend == "onnx-int8")
        except OutputError:
            if not folder.exists():  # else another process exported the same in the meantime
                raise

    with in_use(folder, exported), suppress(HalflabelError):
        return OnnxModel(folder)
    shutil.rmtree(folder, ignore_errors=True)  # a damaged cache entry is exported again
    with in_use(folder, exported):
        return OnnxModel(folder)


def _fingerprint(model: TrainedModel) -> str:
    """A hash of everything that predictions depend on."""
    digest = hashlib.blake2b(f"{__version__} {transformer_of(model).fingerprint()}".encode(), digest_size=16)
    decision = model.rules.to_json() if model.task == "multi-label" else None
    votes = [{} if vote is None else vote.tensors() for vote in (model.words, model.neighbours)]
    parts = [model.classes.to_json(), model.method, model.settings, decision, model.temperature]
    digest.update(json.dumps(parts, sort_keys=True).encode())
    network = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in model.network.state_dict().items()}
    for name, array in sorted((network | votes[0] | votes[1]).items()):
        digest.update(name.encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def transformer_of(model: TrainedModel) -> Encoder:
    """The model's encoder; one that is not a transformer is refused."""
    if len(model.encoder.parts) > 1:
        raise ModelError("This model has several encoders, which cannot be exported or compiled; use the model itself, "
                         "or train with one encoder.")
    if not isinstance(model.encoder, Encoder):
        raise ModelError(f"{model.method} counts words and has no transformer to export or compile; use the model "
                         "itself, or train another method.")
    return model.encoder


def _check(model: TrainedModel, folder: Path) -> Encoder:
    encoder = transformer_of(model)
    missing = [name for name in ("onnx", "onnxruntime", "onnxscript") if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"{missing[0]} is not installed; pip install 'halflabel[onnx]'.")
    if folder.exists():
        raise OutputError(f"{folder} exists already; choose another folder or remove it first.")
    if getattr(encoder.tokenizer, "backend_tokenizer", None) is None:
        raise ModelError("This encoder's tokenizer is written in Python and has no tokenizer.json, so it cannot be "
                         "exported; use another encoder.")
    return encoder


class Smoothed(nn.Module):
    """x W' + b as ((x - c) / s) (W s)' + (b + W c) + outliers of x times their W', (..., I) -> (..., O)."""

    def __init__(self, linear: nn.Linear, low: Tensor, high: Tensor) -> None:
        super().__init__()
        weight, bias = linear.weight.detach(), linear.bias.detach()
        inputs, outputs = linear.in_features, linear.out_features
        one_sided = -low.min() < ONE_SIDED * high.max()
        centre = torch.zeros_like(low) if one_sided else (low + high) / 2
        magnitude = torch.maximum(high - centre, centre - low)
        s = magnitude.clamp_min(max(float(magnitude.median()), 1e-5)) ** STRENGTH
        outliers = magnitude.topk(OUTLIERS if inputs > outputs else 0).indices
        others = torch.ones_like(s).index_fill(0, outliers, 0.0)
        self.register_buffer("inverse", others / s)
        self.register_buffer("shift", None if one_sided else -centre * others / s)
        self.register_buffer("outliers", outliers)
        self.register_buffer("outlier_weight", weight[:, outliers].T.contiguous())
        self.linear = nn.Linear(inputs, outputs)
        self.linear.weight = nn.Parameter(weight * s * others, requires_grad=False)
        self.linear.bias = nn.Parameter(bias + weight @ (centre * others), requires_grad=False)

    inverse: Tensor
    shift: Tensor | None
    outliers: Tensor
    outlier_weight: Tensor

    def forward(self, x: Tensor) -> Tensor:
        z = x * self.inverse
        y: Tensor = self.linear(z if self.shift is None else z + self.shift)
        return y + x.index_select(-1, self.outliers) @ self.outlier_weight if len(self.outliers) else y


@torch.no_grad()
def smooth(encoder: Encoder, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Replaces the encoder's linear layers, calibrated on batches of token ids and masks, (N, T) each."""
    linears = [(parent, name, child) for parent in encoder.modules() for name, child in parent.named_children()
               if isinstance(child, nn.Linear) and child.bias is not None]
    extremes: dict[nn.Module, tuple[Tensor, Tensor]] = {}  # minimum and maximum of each channel, (I,)

    def record(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x = inputs[0][mask.bool()]
        low, high = extremes.get(module, (x[0], x[0]))
        extremes[module] = torch.minimum(low, x.amin(dim=0)), torch.maximum(high, x.amax(dim=0))

    hooks = [child.register_forward_pre_hook(record) for _, _, child in linears]
    for ids, mask in batches:
        encoder(ids, mask)
    for hook in hooks:
        hook.remove()
    for parent, name, linear in linears:
        if linear in extremes:
            setattr(parent, name, Smoothed(linear, *extremes[linear]))
