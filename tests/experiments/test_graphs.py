"""The graphs say what the model says, of any number of images, hypotheses, words and, where it may
be, locations.
"""

import numpy as np
import onnxruntime
import pytest
import torch
from models.captioners import CAPTIONERS, GRID, MASK, D, L, build
from models.tensors import normal
from numpy.testing import assert_allclose
from refusals import refuses

from captioning.backbones.context import ContextSet
from captioning.backbones.precomputed import Precomputed
from captioning.models.parts.recurrent_encoder import RecurrentEncoder
from captioning.tokens import BOS
from experiments.onnx.graphs import decoder_graphs, of_image
from experiments.onnx.onnx_files import write_onnx

FIRST = ("prefix", "gru_location", "sat_soft model.attention.mode=argmax")
"""Of each mechanism one; `make soak` has all, at ten seconds each."""


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    graph = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])

    def run(**given):
        names = [output.name for output in graph.get_outputs()]
        found = graph.run(names, {i.name: np.asarray(given[i.name]) for i in graph.get_inputs()})
        return dict(zip(names, found, strict=True))

    return run


def close(found, step):
    assert_allclose(found["log_probs"], step.logits.log_softmax(-1), atol=1e-4)
    assert (step.attention is None) is ("attention" not in found)
    if step.attention is not None:
        assert_allclose(found["attention"], step.attention, atol=1e-4)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FIRST else pytest.mark.soak) for name in CAPTIONERS],
)
@torch.no_grad()
def test_logits_along_a_caption(name, tmp_path):
    model = build(name).float().requires_grad_(False)
    backbone = Precomputed("nowhere", dim=D, regions=L)
    assert backbone.grid == GRID
    if isinstance(model.encoder, RecurrentEncoder):
        pytest.skip("graphs cannot hold it")
    graphs = decoder_graphs(backbone, model)
    write_onnx(graphs, tmp_path)
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


def test_recurrent_encoders_are_refused():
    with refuses("recurrent encoder"):
        decoder_graphs(Precomputed("nowhere", dim=D, regions=L), build("rnn_search"))
