"""The spatial transformer, as it is composed, against PyTorch's own encoder and decoder with the
same weights.

B images, N captions per image, C input positions, L context vectors of D features, H heads, A =
d_attn, E = H A, V words; all different primes.
"""

import math

import pytest
import torch
from models.captioners import GRID, B, C, D, L, Largest, N, V, agree, captioner, masks
from models.captioners import inputs as registry_inputs
from models.tensors import normal, randomised, repeatable
from torch import nn
from torch.nn import functional as F

from captioning.backbones.context import ContextSet
from captioning.models.parts.multi_head import BLOCK
from captioning.tokens import BOS

H, A, HIDDEN, MAX_TOKENS = 7, 13, 19, 29
E = H * A
ENCODER_LAYERS, DECODER_LAYERS = 2, 3


def build(d_context=D, grid=GRID, **changes):
    settings = {
        "max_tokens": MAX_TOKENS,
        "d_model": E,
        "heads": H,
        "d_ff": HIDDEN,
        "decoder_layers": DECODER_LAYERS,
        "encoder.layers": ENCODER_LAYERS,
    }
    return randomised(
        captioner("spatial_transformer", V, d_context, grid, **(settings | changes)), std=0.15
    )


def inputs(d=D, grid=GRID, mask=None):
    return ContextSet(normal(B, math.prod(grid), d), grid, mask), registry_inputs()[1]


def sinusoid(position, features):
    angles = [position / 10000 ** (2 * (k // 2) / features) for k in range(features)]
    return [math.cos(angle) if k % 2 else math.sin(angle) for k, angle in enumerate(angles)]


def table(rows):
    return torch.tensor(rows).double()  # the model keeps its tables in single precision


def copy_attention(theirs, ours, tau):
    """Attention may have no biases here; theirs divides scores by sqrt(A), ours by `tau`."""
    parts = ["project"] if hasattr(ours, "project") else ["project_query", "project_image"]
    maps = [getattr(ours, part).linear for part in parts]
    theirs.in_proj_weight.copy_(torch.cat([each.weight for each in maps]))
    theirs.out_proj.weight.copy_(ours.output.weight)
    theirs.in_proj_bias.zero_()
    theirs.out_proj.bias.zero_()
    if ours.output.bias is not None:
        theirs.in_proj_bias.copy_(torch.cat([each.bias for each in maps]))
        theirs.out_proj.bias.copy_(ours.output.bias)
    theirs.in_proj_weight[:E] *= math.sqrt(A) / tau
    theirs.in_proj_bias[:E] *= math.sqrt(A) / tau


def copy_layer(theirs, feed_forward, *norms):
    for part, ours in (
        (theirs.linear1, feed_forward.layers[0]),
        (theirs.linear2, feed_forward.layers[2]),
    ):
        part.load_state_dict(ours.state_dict())
    for number, ours in enumerate([*norms, feed_forward.norm], start=1):
        getattr(theirs, f"norm{number}").load_state_dict(ours.state_dict())


@torch.no_grad()
def pytorch(model, vectors, tokens, keep, image_positions, norm, scale):
    """For one image `[L, D]` and captions `[N, C]`: hidden `[N, C, E]` and maps of all layers `[N,
    C, layers H, L]`.
    """
    image_scale, text_scale = (
        math.sqrt(n + A if scale == "sqrt_len_d" else A) for n in (int(keep.sum()), MAX_TOKENS)
    )
    sizes = {
        "dim_feedforward": HIDDEN,
        "dropout": 0.0,
        "batch_first": True,
        "norm_first": norm == "pre",
    }
    lasts = [
        ours if norm == "pre" else None for ours in (model.encoder.norm, model.norm)
    ]  # it belongs to `pre` alone
    layer = nn.TransformerEncoderLayer(E, H, **sizes)
    encoder = nn.TransformerEncoder(layer, ENCODER_LAYERS, lasts[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(E, H, **sizes), DECODER_LAYERS, lasts[1]
    )
    maps = []
    for layer, ours in zip(encoder.double().layers, model.encoder.layers, strict=True):
        copy_attention(layer.self_attn, ours.attention, image_scale)
        copy_layer(layer, ours.feed_forward, ours.attention.norm)
    for layer, ours in zip(decoder.double().layers, model.decoder, strict=True):
        copy_attention(layer.self_attn, ours.self_attention, text_scale)
        copy_attention(layer.multihead_attn, ours.inter_attention, image_scale)
        copy_layer(layer, ours.feed_forward, ours.self_attention.norm, ours.inter_attention.norm)
        layer.multihead_attn.register_forward_hook(lambda _, a, result: maps.append(result[1]))
    wanted = {"need_weights": True, "average_attn_weights": False}
    for part in (*encoder.modules(), *decoder.modules()):
        if isinstance(part, nn.MultiheadAttention):
            part.dropout = model.dropout
            part.register_forward_pre_hook(
                lambda _, a, given: (a, given | wanted), with_kwargs=True
            )
    encoder.train(model.training)
    decoder.train(model.training)
    drop = repeatable if model.training else nn.Identity()
    image = model.encoder.project(vectors) + table(image_positions)
    captions = model.embed.weight[tokens] * math.sqrt(E) + table(
        [sinusoid(t, E) for t in range(tokens.shape[1])]
    )
    hidden_keys = ~keep.expand(len(tokens), -1)
    memory = encoder(drop(image)[None], src_key_padding_mask=hidden_keys[:1]).expand(
        len(tokens), -1, -1
    )
    future = ~torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
    hidden = decoder(drop(captions), memory, tgt_mask=future, memory_key_padding_mask=hidden_keys)
    return hidden, torch.cat(maps, dim=1).transpose(1, 2)


@torch.no_grad()
def check(model, context, tokens, positions=None, norm="post", scale="sqrt_len_d"):
    """The whole pass of every caption and every head's map equal those of PyTorch."""
    shown, fused = model(context, tokens, need_weights=True), model(context, tokens)
    maps = model.attention_maps(context, tokens)["inter"]
    assert fused.attention is None
    places = context.vectors.shape[1]
    positions = positions or [sinusoid(k, E) for k in range(places)]
    for i, vectors in enumerate(context.vectors):
        keep = torch.ones(places, dtype=torch.bool) if context.mask is None else context.mask[i]
        hidden, weights = pytorch(model, vectors, tokens[i], keep, positions, norm, scale)
        agree(shown.hidden[i], hidden)
        agree(fused.hidden[i], hidden)
        if not model.training:
            agree(maps[i], weights)
            agree(shown.attention[i], weights[:, :, -H:].mean(dim=2))  # Figure 2
    torch.testing.assert_close(
        model.readout(fused.hidden), fused.hidden @ model.output.weight.T + model.output.bias
    )


@masks
@pytest.mark.parametrize("scale", ["sqrt_len_d", "sqrt_d"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_whole_pass(mask, scale, norm):
    check(build(scale=scale, norm=norm), *inputs(mask=mask), scale=scale, norm=norm)


@masks
def test_whole_pass_with_biases(mask):
    model = build(biases=True, **{"encoder.biases": True})
    biased = [name for name, _ in model.named_parameters() if "attention" in name]
    assert sum(name.endswith(("linear.bias", "output.bias")) for name in biased) == (
        2 * ENCODER_LAYERS + 5 * DECODER_LAYERS
    )
    check(model, *inputs(mask=mask))


def test_positions_in_one_dimension_follow_the_rows_and_in_two_both():
    grid, half = (3, 5), E // 2
    places = [(row, column) for row in range(3) for column in range(5)]
    check(build(grid=grid), *inputs(grid=grid), [sinusoid(5 * r + c, E) for r, c in places])
    both = [sinusoid(row, half) + sinusoid(column, E - half) for row, column in places]
    check(build(grid=grid, **{"encoder.positions": "2d"}), *inputs(grid=grid), both)


WEIGHTS = [(B, H, L, L)] * ENCODER_LAYERS + [(B * N, H, C, C), (B, H, N * C, L)] * DECODER_LAYERS


@masks
@torch.no_grad()
def test_dropout_is_at_three_places(mask, dropped, monkeypatch):
    model = build(dropout=0.25).train()
    context, tokens = inputs(mask=mask)
    model(context, tokens)
    places = [
        (B, L, E),
        (B, N, C, E),
        *WEIGHTS,
    ]  # image features, caption embeddings, attention weights
    assert sorted(dropped) == sorted((shape, 0.25) for shape in places)
    monkeypatch.setattr(
        F, "dropout", lambda x, p, training=True, inplace=False: repeatable(x) if p else x
    )
    check(model, context, tokens)  # and they are where PyTorch has them


@pytest.mark.parametrize("scale", ["sqrt_len_d", "sqrt_d"])
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_nothing_is_as_large_as_the_square_of_the_set(scale, masked, dropout):
    grid, heads = (26, 31), 2
    places = math.prod(grid)
    settings = {"d_model": 8, "heads": heads, "d_ff": 8, "decoder_layers": 1, "encoder.layers": 1}
    model = captioner(
        "spatial_transformer", V, 8, grid, **settings, dropout=dropout, scale=scale
    ).train()
    mask = torch.arange(places)[None] < places - 40 if masked else None
    context, tokens = ContextSet(normal(1, places, 8).float(), grid, mask), registry_inputs()[1][:1]
    with Largest() as largest:
        model(context, tokens).hidden.sum().backward()
        model.eval()
        model.step(tokens[..., 0], model.start(context, N))
    bound = heads * BLOCK if dropout else 4 * heads * C * N * places
    assert largest.numbers <= bound < heads * places**2


@torch.no_grad()
def test_sizes_that_are_refused():
    model, (context, _) = build(max_tokens=3), inputs()
    state, longest = model.start(context, N), torch.full((B, N, 3), BOS)
    for word in longest.unbind(dim=2):
        state = model.step(word, state).state
    model(context, longest)
    with pytest.raises(ValueError, match="4 input tokens"):
        model(context, F.pad(longest, (0, 1), value=4))
    with pytest.raises(ValueError, match="4 input tokens"):
        model.step(longest[..., 0], state)


@masks
@torch.no_grad()
def test_uniform_inter_attention_has_the_weights_of_queries_that_are_zero(mask):
    context, tokens = inputs(mask=mask)
    models = [build(conditioning=kind) for kind in ("uniform", "cross")]
    models[1].load_state_dict(models[0].state_dict())
    for layer in models[1].decoder:
        layer.inter_attention.project_query.linear.weight.zero_()
    found, expected = (model(context, tokens, need_weights=True) for model in models)
    agree([found.hidden, found.attention], [expected.hidden, expected.attention])
