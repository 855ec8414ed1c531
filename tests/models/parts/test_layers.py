"""What Cornia et al. and Huang et al. add to the layers of a transformer, and relative positions,
by hand.

B images, vectors of E features on a grid, H heads, A = E / H, M memory slots.
"""

import math

import pytest
import torch
from models.captioners import OF_SIX as MASK
from models.captioners import build, inputs
from models.tensors import close, normal, randomised
from torch.testing import assert_close

from captioning.backbones.context import ContextSet
from captioning.models.parts.encoders import LearnedQueries, Pooled, SelfAttentionLayers
from captioning.models.parts.layers import AttentionOnAttention, EncoderLayer, InterAttention
from captioning.models.parts.multi_head import Memory, attend
from captioning.models.parts.numerics import initialise
from captioning.models.parts.relative import Geometry, RelativeTable

pytestmark = pytest.mark.usefixtures("without_gradients")

B, GRID, L, E, H = 2, (2, 3), 6, 14, 2


def test_the_gate_of_attention_on_attention():
    """A weight of one for the attended, for the query, and a gate that is open or shut."""
    gate = AttentionOnAttention(E, dropout=0.0).double()
    attended, x = normal(B, L, E), normal(B, L, E, seed=2)
    one, none = torch.eye(E).double(), torch.zeros(E, E).double()
    for information, expected in (
        (torch.cat((one, none), 1), attended),
        (torch.cat((none, one), 1), x),
    ):
        gate.linear.weight.copy_(torch.cat((information, torch.zeros(E, 2 * E))))
        for bias, factor in ((50.0, 1), (-50.0, 0)):
            gate.linear.bias.copy_(torch.cat((torch.zeros(E), torch.full((E,), bias))))
            close(gate(attended, x), factor * expected, 1e-09)


def test_memory_is_attended_like_places():
    slots, memory = 3, Memory(3, E, H).double()
    initialise(memory)
    heads = [normal(B, H, L, E // H, seed=k) for k in range(3)]
    memory.key.zero_()
    key, value, mask = memory(0 * heads[1], heads[2], MASK[:, None, None])
    _, weights = attend(heads[0], key, value, 1.0, mask, need_weights=True)
    assert mask[..., L:].all()
    places = MASK.sum(dim=1)[:, None, None, None] + slots
    close(weights, mask.double().expand_as(weights) / places)
    randomised(memory)
    key, value, _ = memory(*heads[1:], None)
    close(key[:, :, L:], math.sqrt(E // H) * memory.key.expand(B, -1, -1, -1))
    close(value[:, :, L:], math.sqrt(slots) * memory.value.expand(B, -1, -1, -1))
    found = attend(heads[0], key, value, 1.0)[0]
    for parameter in memory.parameters():
        parameter.copy_(parameter[:, [2, 0, 1]])
    close(attend(heads[0], *memory(*heads[1:], None)[:2], 1.0)[0], found)


def test_meshed_attention_of_levels():
    """Equal levels behind open gates are sqrt(N) times one, one level is inter-attention, shut
    gates show nothing.
    """
    x, level = normal(B, 5, E), normal(B, L, E, seed=2)
    plain = randomised(InterAttention(E, E, H, 0.0, "post"))
    expected, alpha = plain(x, plain.image([level]), 1.0, MASK[:, None, None], True)
    for levels in (1, 3):
        meshed = InterAttention(E, E, H, 0.0, "post", levels).double()
        meshed.load_state_dict(plain.state_dict(), strict=False)
        for gate in meshed.gates:
            gate.weight.zero_()
            gate.bias.fill_(50.0)
        found, weights = meshed(x, meshed.image([level] * levels), 1.0, MASK[:, None, None], True)
        close(found, math.sqrt(levels) * expected, 1e-09)
        close(weights, alpha.repeat(1, levels, 1, 1))
        meshed.gates[0].bias.fill_(-50.0)
        found, _ = meshed(x, meshed.image([level] * levels), 1.0, MASK[:, None, None], False)
        close(found, (levels - 1) / math.sqrt(levels) * expected, 1e-09)


def test_levels_are_the_outputs_of_the_layers_and_reach_the_decoder_in_order():
    model, (context, tokens) = build("meshed_memory"), inputs()
    levels, weights = model.encoder.forward_with_weights(context)
    assert len(levels) == len(weights) == model.encoder.depth == 2
    close(levels[-1].vectors, model.encoder(context).vectors)
    model.encoder.layers = model.encoder.layers[:1]
    close(levels[0].vectors, model.encoder(context).vectors)
    assert model.shares_attention
    shares = model.attention_shares(context, tokens)
    assert shares.keys() == {"memory"}
    expected = weights[0][..., context.vectors.shape[1] :].sum(dim=-1).mean(dim=(1, 2))
    close(shares["memory"][:, 0, 0], expected)


def test_geometry_by_hand():
    geometry = randomised(Geometry(GRID, H))
    found = geometry(GRID)
    for p in range(L):
        for q in range(L):
            down, right = abs(p // 3 - q // 3), abs(p % 3 - q % 3)
            numbers = [100 * math.log(max(away, 1e-3)) for away in (right, down)] + [0.0, 0.0]
            angles = [number / 1000 ** (k / 8) for number in numbers for k in range(8)]
            embedding = torch.tensor([*map(math.sin, angles), *map(math.cos, angles)]).double()
            weight = (geometry.linear.weight @ embedding + geometry.linear.bias).clamp(min=0)
            close(found[:, p, q], weight.clamp(min=1e-6).log(), 0.0001)
    close(found, found.mT)
    geometry.linear.weight.zero_()
    geometry.linear.bias.fill_(1.0)
    assert not geometry(GRID).any()  # plain attention


def test_a_table_knows_directions_and_smaller_grids():
    table = RelativeTable(GRID, H)
    table.table[:, :, 2 + 1] = 1.0  # a key one column to the right of the query
    expected = [[float(q % 3 - p % 3 == 1) for q in range(L)] for p in range(L)]
    assert table(GRID).tolist() == [expected] * H
    randomised(table)
    rows = [3 * (place // 2) + place % 2 for place in range(4)]
    close(table((2, 2)), table(GRID)[:, rows][:, :, rows])
    with pytest.raises(ValueError, match=r"\(3, 3\)"):
        table((3, 3))


@pytest.mark.parametrize("shared", [False, True])
def test_a_bias_is_added_to_the_scores_before_the_softmax(shared):
    settings = {
        "d_model": E,
        "heads": H,
        "d_ff": 5,
        "positions": "none",
        "relative": "table",
        "shared": shared,
    }
    encoder = randomised(SelfAttentionLayers(E, GRID, layers=2, **settings))
    assert len(encoder.relative) == 2 - shared
    context = ContextSet(normal(B, L, E), GRID, MASK)
    found, weights = encoder.forward_with_weights(context)
    close(encoder(context).vectors, found[-1].vectors, 1e-10)
    assert not weights[0].transpose(1, 3)[~MASK].any()
    for table in encoder.relative:
        table.table.fill_(0.3)  # one number for all
    plain = (
        SelfAttentionLayers(E, GRID, layers=2, **(settings | {"relative": "none"})).double().eval()
    )
    plain.load_state_dict({k: v for k, v in encoder.state_dict().items() if "relative" not in k})
    close(encoder(context).vectors, plain(context).vectors, 1e-10)


@pytest.mark.parametrize("embed", ["linear", "relu", "relu_norm"])
def test_how_features_enter(embed):
    encoder = randomised(
        SelfAttentionLayers(5, GRID, d_model=E, heads=H, layers=0, positions="none", embed=embed)
    )
    context = ContextSet(normal(B, L, 5), GRID)
    expected = context.vectors @ encoder.project.weight.T + encoder.project.bias
    if embed != "linear":
        expected = expected.clamp(min=0)
    if embed == "relu_norm":
        centred = expected - expected.mean(dim=-1, keepdim=True)
        expected = centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
        expected = expected * encoder.embed_norm.weight + encoder.embed_norm.bias
    close(encoder(context).vectors, expected)


def test_prefixes_that_have_no_places():
    context = ContextSet(normal(B, L, 5), GRID, MASK)
    pooled = randomised(Pooled(5, GRID, d_model=E, prefix=4))
    first, _, last = pooled.map
    hidden = (context.mean() @ first.weight.T + first.bias).tanh()
    close(pooled(context).vectors.flatten(1), hidden @ last.weight.T + last.bias)

    def behind(**sizes):
        return SelfAttentionLayers(**sizes, d_model=E, heads=H, d_ff=5, layers=1, positions="none")

    queries = randomised(LearnedQueries(5, GRID, encoder=behind, d_model=E, prefix=4))
    found = queries(context)
    assert (found.grid, found.mask, queries.located) == ((1, 4), None, False)
    for b in range(B):
        places = MASK[b].nonzero().flatten()
        places = places[torch.randperm(len(places))]  # their order does not matter
        joint = torch.cat((queries.project(context.vectors[b, places]), queries.queries))
        alone = queries.inner(ContextSet(joint[None], (1, len(joint)))).vectors
        close(found.vectors[b], alone[0, -4:], 1e-10)


def test_an_image_vector_becomes_several():
    def behind(**sizes):
        return SelfAttentionLayers(**sizes, d_model=E, heads=H, d_ff=5, layers=1, positions="none")

    several = randomised(LearnedQueries(5, GRID, encoder=behind, d_model=E, expand=3))
    mapped = several.project(context := normal(B, L, 5)).view(B, 3 * L, E)
    one = randomised(LearnedQueries(E, (2, 9), encoder=behind, d_model=E))
    one.load_state_dict(
        several.state_dict() | {"project.weight": torch.eye(E), "project.bias": torch.zeros(E)}
    )
    found = several(ContextSet(context, GRID, MASK)).vectors
    mask = torch.stack([MASK] * 3, dim=2).flatten(1)
    close(found, one(ContextSet(mapped, (2, 9), mask)).vectors)


def test_the_last_norm_is_that_of_the_output():
    settings = {"layers": 2, "d_model": E, "heads": H, "norm": "pre"}
    normed = randomised(SelfAttentionLayers(E, GRID, **settings))
    plain = SelfAttentionLayers(E, GRID, **settings, last_norm=False).double().eval()
    plain.load_state_dict({k: v for k, v in normed.state_dict().items() if k[:5] != "norm."})
    context = ContextSet(normal(B, L, E), GRID, MASK)
    close(normed(context).vectors, normed.norm(plain(context).vectors))


def test_a_refiner_that_informs_of_nothing_changes_nothing():
    layer, x = randomised(EncoderLayer(E, H, 0, 0.0, "pre", gated=True)), normal(B, L, E)
    layer.attention.output.linear.weight[:E] = 0
    layer.attention.output.linear.bias[:E] = 0
    assert_close(layer(x, 1.0, None, False)[0], x, rtol=0, atol=1e-12)
