"""The graphs say what the model says, of any number of images, hypotheses, words and, where it may be, locations."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from captioners import CAPTIONERS, GRID, MASK, D, L, V, build, normal

from captioning.backbones.context import ContextSet
from captioning.backbones.precomputed import Precomputed
from captioning.errors import CaptioningError
from captioning.export.graphs import Graph, decoder_graphs, of_image
from captioning.export.onnx import write_onnx
from captioning.models.parts.recurrent_encoder import Recurrent
from captioning.tokens import BOS

FIRST = (
    "spatial_transformer",
    "meshed_memory",
    "prefix",
    "gru_location",
    "gru_conditional",
    "sat_soft attention.choice=argmax",
    "up_down cell.query=before attention.window=3",
    "transformer model/encoder=transposed encoder.doublings=2",
)
"""Of each mechanism one; `make soak` has all, at seconds each."""
EXPORTED = [name for name in CAPTIONERS if not isinstance(getattr(build(name), "encoder", None), Recurrent)]


def session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    graph = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])

    def run(**given: Any) -> dict[str, Any]:
        names = [output.name for output in graph.get_outputs()]
        found = graph.run(names, {i.name: np.asarray(given[i.name]) for i in graph.get_inputs()})
        return dict(zip(names, found, strict=True))

    return run


def close(found: dict[str, Any], step: Any, atol: float = 1e-4) -> None:
    np.testing.assert_allclose(found["log_probs"], step.logits.log_softmax(-1), atol=atol)
    for name in ("attention", "attended"):
        assert (getattr(step, name) is None) is (name not in found)
        if name in found:
            np.testing.assert_allclose(found[name], getattr(step, name), atol=atol)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FIRST else pytest.mark.soak) for name in EXPORTED]
)
@torch.no_grad()
def test_logits_along_a_caption(name: str, tmp_path: Path) -> None:
    model = build(name).float().requires_grad_(False)
    backbone = Precomputed("nowhere", dim=D, regions=L)
    assert backbone.grid == GRID
    graphs = decoder_graphs(backbone, model)
    write_onnx(graphs, tmp_path, int8=False)
    start, step = session(tmp_path / "start.onnx"), session(tmp_path / "step.onnx")
    free = "locations" in graphs["start"].inputs["vectors"].values()
    more = 2 if free else 0
    vectors = torch.cat([normal(1, L, D), normal(1, more, D, seed=3)], dim=1).float()
    mask = torch.cat([MASK[:1], torch.ones(1, more, dtype=torch.bool)], dim=1)
    said = model.step(torch.full((1, 1), BOS), model.start(ContextSet(vectors, GRID, mask), 1))
    found = start(vectors=vectors, mask=mask)
    close(found, said)
    image = {leaf: found[leaf] for leaf in graphs["step"].inputs if of_image(leaf)}
    own = [leaf for leaf in graphs["step"].inputs if leaf != "tokens" and leaf not in image]
    parents = torch.zeros(1, 5, dtype=torch.long)
    for tokens in torch.tensor([[4, 9, 7, 5, 22], [8, 8, 6, 4, 11], [5, 6, 7, 8, 9]]):
        said = model.step(tokens[None], said.state.reorder(parents))
        kept = {leaf: found.get(f"{leaf}.next", found.get(leaf))[:, parents[0]] for leaf in own}
        found = step(tokens=tokens[None], **image, **kept)
        close(found, said)
        parents = torch.tensor([[4, 0, 0, 2, 1]])


@pytest.mark.parametrize("name", sorted({*CAPTIONERS} - {*EXPORTED}))
def test_recurrent_encoders_are_refused(name: str) -> None:
    with pytest.raises(CaptioningError, match="recurrent encoder"):
        decoder_graphs(Precomputed("nowhere", dim=D, regions=L), build(name))


@torch.no_grad()
def test_the_last_layer_in_int8(tmp_path: Path) -> None:
    """As far from single precision as rounding to levels can take it, and there is no other copy of it."""
    model = build("show_tell").float().requires_grad_(False)
    model.head.output.weight[:, 0] *= 3
    graphs = decoder_graphs(Precomputed("nowhere", dim=D, regions=L), model)
    write_onnx(graphs, tmp_path, int8=True)
    vectors, mask = normal(1, L, D).float(), MASK[:1]
    given: list[Any] = []
    model.head.output.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0].flatten().double().numpy()))
    said = model.step(torch.full((1, 1), BOS), model.start(ContextSet(vectors, GRID, mask), 1))
    found = session(tmp_path / "start.onnx")(vectors=vectors, mask=mask)
    error = np.abs(found["log_probs"] - said.logits.log_softmax(-1).numpy()).max()
    (x,), weight = given, model.head.output.weight.double().numpy()
    # An input is off by half a level, and by another half where zero has become a level; a weight by half of one.
    x_level, w_level = (max(x.max(), 0) - min(x.min(), 0)) / 255, np.abs(weight).max(axis=1, keepdims=True) / 63
    off = (np.abs(weight) * x_level + (np.abs(x) + x_level) * w_level / 2).sum(axis=1).max()
    assert 0 < error < 2 * off + 1e-4  # a logit and the normalisation, which is off by no more than the farthest logit
    graph = (tmp_path / "start.onnx").read_bytes()
    assert b"MatMulInteger" in graph
    for weight in (model.head.output.weight, model.head.output.weight.T):
        assert weight.contiguous().numpy().tobytes() not in graph
    assert V * model.head.output.in_features > 100


class Words(torch.nn.Module):
    """A last layer alone."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(normal(features, 7).float(), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weight).log_softmax(-1)


@pytest.mark.parametrize(("low", "high"), [(0, 255), (-255, 0), (-100, 155)])
def test_int8_is_exact_on_every_cpu(low: int, high: int, tmp_path: Path) -> None:
    """As integers in NumPy say, of the largest sums too, also where two products are added in 16 bits."""
    layer = Words(64)
    levels = layer.weight.abs().amax(0) / 63
    # the largest sums that there are, of both signs, and one whose pairs are large and the whole is not
    layer.weight[:, 0], layer.weight[:, 1] = 63 * levels[0], -63 * levels[1]
    layer.weight[:, 2] = 63 * levels[2] * torch.tensor([1.0, 1.0, -1.0, -1.0]).repeat(16)
    inputs = np.random.default_rng(0).integers(low, high + 1, (2, 64)).astype(np.float32)
    inputs[0], inputs[0, 0], inputs[1, 0], inputs[1, 1] = high, low, low, high  # so a level of the inputs is 1
    program = torch.export.export(layer, (torch.from_numpy(inputs),))
    write_onnx({"start": Graph(program, {"x": {}}, {"log_probs": {}})}, tmp_path, int8=True)

    weight = layer.weight.numpy()
    scale = np.abs(weight).max(axis=0) / np.float32(63)
    whole = np.rint(weight / scale).astype(np.int64)
    pairs = (inputs - low)[:, :, None].astype(np.int64) * whole  # inputs as uint8
    sums = pairs.reshape(2, 32, 2, 7).sum(axis=2)
    assert np.array_equal(sums, sums.clip(-(2**15), 2**15 - 1))
    logits = (inputs.astype(np.int64) @ whole) * scale.astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    expected = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    # integers are exact below 2**24; scaling, differences and logarithm are rounded to single precision
    bound = 8 * np.finfo(np.float32).eps * np.abs(logits).max()
    np.testing.assert_allclose(session(tmp_path / "start.onnx")(x=inputs)["log_probs"], expected, rtol=0, atol=bound)
