"""The spatial transformer, as it is composed, against loops over its equations; transformers against PyTorch's layers.

B images, N captions per image, C input positions, L context vectors of D features, H heads, A = d_attn, E = H A,
V words; all different primes.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from models.captioners import GRID, MASK, B, C, D, L, N, V, captioner, normal, randomised, repeatable
from models.captioners import inputs as registry_inputs
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from captioning.backbones.context import ContextSet
from captioning.models import Transformer
from captioning.models.parts.layers import BLOCK
from captioning.models.parts.positions import resized
from captioning.tokens import BOS

H, A, HIDDEN, MAX_TOKENS = 7, 13, 19, 29
E = H * A
ENCODER_LAYERS, DECODER_LAYERS = 2, 3
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-10}

masks = pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])


def build(d_context: int = D, grid: tuple[int, int] = GRID, **changes: Any) -> Transformer:
    settings = {
        "max_tokens": MAX_TOKENS,
        "d_feat": E,
        "heads": H,
        "d_hidden": HIDDEN,
        "decoder_layers": DECODER_LAYERS,
        "encoder.layers": ENCODER_LAYERS,
    }
    return randomised(captioner("spatial_transformer", V, d_context, grid, **(settings | changes)), std=0.15)


def inputs(d: int = D, grid: tuple[int, int] = GRID, mask: Tensor | None = None) -> tuple[ContextSet, Tensor]:
    return ContextSet(normal(B, math.prod(grid), d), grid, mask), registry_inputs()[1]


def sinusoid(position: int, features: int) -> list[float]:
    angles = [position / 10000 ** (2 * (k // 2) / features) for k in range(features)]
    return [math.cos(angle) if k % 2 else math.sin(angle) for k, angle in enumerate(angles)]


def table(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows).double()  # the model keeps its tables in single precision


def recomputed(
    model: Transformer,
    vectors: Tensor,
    tokens: Tensor,
    keep: Tensor | None = None,
    image_positions: list[list[float]] | None = None,
    scale: str = "sqrt_len_d",
    drop: Callable[[Tensor], Tensor] = lambda x: x,
) -> tuple[Tensor, Tensor, Tensor]:
    """Section 1.1 for one image `[L, D]` and caption `[C]`: hidden `[C, E]`, logits `[C, V]`, maps `[layers, H, C, L]`.

    Knows of the model its weights and nothing else.
    """
    p = dict(model.named_parameters())

    def norm(x: Tensor, name: str) -> Tensor:
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
        return (x - mean) / (variance + 1e-5).sqrt() * p[f"{name}.norm.weight"] + p[f"{name}.norm.bias"]

    def attend(x: Tensor, y: Tensor, name: str, tau: float, mask: Tensor) -> tuple[Tensor, Tensor]:
        names = ["project"] if f"{name}.project.linear.weight" in p else ["project_query", "project_image"]
        w = torch.cat([p[f"{name}.{part}.linear.weight"] for part in names]).view(3, H, -1, E)  # Eq. 1: W_Q, W_K, W_V
        scores = torch.einsum("qe,hae,haf,kf->hqk", x, w[0], w[1], y) / tau
        weights = scores.masked_fill(~mask, -math.inf).softmax(-1)  # Eq. 2
        heads = torch.einsum("hqk,ke,hae->hqa", drop(weights), y, w[2])
        joined = torch.cat(list(heads), dim=1)  # Eq. 3
        return norm(joined @ p[f"{name}.output.weight"].T + x, name), weights

    def feed_forward(x: Tensor, name: str) -> Tensor:
        inner = (x @ p[f"{name}.layers.0.weight"].T + p[f"{name}.layers.0.bias"]).relu()  # Eq. 4
        return norm(inner @ p[f"{name}.layers.2.weight"].T + p[f"{name}.layers.2.bias"] + x, name)

    length, count = len(vectors), len(tokens)
    keep = torch.ones(length, dtype=torch.bool) if keep is None else keep
    image_tau, text_tau = math.sqrt(int(keep.sum()) + E // H), math.sqrt(MAX_TOKENS + E // H)
    if scale == "sqrt_d":
        image_tau = text_tau = math.sqrt(E // H)
    image = vectors if vectors.shape[1] == E else vectors @ p["encoder.project.weight"].T + p["encoder.project.bias"]
    image = drop(image + table(image_positions or [sinusoid(k, E) for k in range(length)]))
    for i in range(ENCODER_LAYERS):
        image, _ = attend(image, image, f"encoder.layers.{i}.attention", image_tau, keep)
        image = feed_forward(image, f"encoder.layers.{i}.feed_forward")
    x = drop(p["embed.weight"][tokens] * math.sqrt(E) + table([sinusoid(t, E) for t in range(count)]))
    causal = torch.ones(count, count, dtype=torch.bool).tril()
    maps = []
    for i in range(DECODER_LAYERS):
        x, _ = attend(x, x, f"decoder.{i}.self_attention", text_tau, causal)
        x, weights = attend(x, image, f"decoder.{i}.inter_attention", image_tau, keep)
        x = feed_forward(x, f"decoder.{i}.feed_forward")
        maps.append(weights)
    return x, x @ p["output.weight"].T + p["output.bias"], torch.stack(maps)


@torch.no_grad()
def check(model: Transformer, context: ContextSet, tokens: Tensor, **how: Any) -> None:
    """The whole pass of every caption, its logits and every head's map, equal the recomputed ones."""
    output = model(context, tokens, need_weights=True)
    fused = model(context, tokens)
    assert fused.attention is None
    logits = model.readout(output.hidden)
    maps = model.attention_maps(context, tokens)["inter"]
    b, n, c = tokens.shape
    assert output.hidden.shape == (b, n, c, E)
    for i in range(b):
        keep = None if context.mask is None else context.mask[i]
        for j in range(n):
            hidden, expected, weights = recomputed(model, context.vectors[i], tokens[i, j], keep, **how)
            torch.testing.assert_close(output.hidden[i, j], hidden, **CLOSE)
            torch.testing.assert_close(fused.hidden[i, j], hidden, **CLOSE)
            torch.testing.assert_close(logits[i, j], expected, **CLOSE)
            torch.testing.assert_close(maps[i, j], weights.flatten(0, 1).transpose(0, 1), **CLOSE)
            torch.testing.assert_close(output.attention[i, j], weights[-1].mean(dim=0), **CLOSE)  # Figure 2


@masks
@pytest.mark.parametrize("scale", ["sqrt_len_d", "sqrt_d"])
def test_whole_pass(mask: Tensor | None, scale: str) -> None:
    check(build(scale=scale), *inputs(mask=mask), scale=scale)


def test_whole_pass_without_projection() -> None:
    check(build(d_context=E), *inputs(d=E))


def test_positions_in_one_dimension_follow_the_rows_and_in_two_both() -> None:
    grid, half = (3, 5), E // 2
    places = [(row, column) for row in range(3) for column in range(5)]
    check(build(grid=grid), *inputs(grid=grid), image_positions=[sinusoid(5 * r + c, E) for r, c in places])
    both = [sinusoid(row, half) + sinusoid(column, E - half) for row, column in places]
    check(build(grid=grid, **{"encoder.positions": "2d"}), *inputs(grid=grid), image_positions=both)


@pytest.mark.parametrize("length", [1, 2, MAX_TOKENS])
def test_text_temperature_does_not_know_the_length(length: int) -> None:
    tokens = torch.randint(4, V, (B, 1, length), generator=torch.Generator().manual_seed(1))
    check(build(), inputs()[0], tokens)  # recomputed with max_tokens for every length


WEIGHTS = [(B, H, L, L)] * ENCODER_LAYERS + [(B * N, H, C, C), (B, H, N * C, L)] * DECODER_LAYERS


@masks
@torch.no_grad()
def test_dropout_is_at_three_places(mask: Tensor | None, dropped: list[tuple[tuple[int, ...], float]]) -> None:
    model = build(dropout=0.25).train()
    context, tokens = inputs(mask=mask)
    model(context, tokens)
    places = [(B, L, E), (B, N, C, E), *WEIGHTS]  # image features, caption embeddings, attention weights
    assert sorted(dropped) == sorted((shape, 0.25) for shape in places)
    check(model, context, tokens, drop=repeatable)  # and they are where the recomputed pass has them


class Largest(TorchDispatchMode):
    """The most numbers in a tensor that any operation gives."""

    numbers = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = operation(*args, **(kwargs or {}))
        for each in found if isinstance(found, tuple | list) else [found]:
            if isinstance(each, Tensor):
                self.numbers = max(self.numbers, each.untyped_storage().nbytes() // each.element_size())
        return found


@pytest.mark.parametrize("scale", ["sqrt_len_d", "sqrt_d"])
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_nothing_is_as_large_as_the_square_of_the_set(scale: str, masked: bool, dropout: float) -> None:
    grid, heads = (26, 31), 2
    places = math.prod(grid)
    settings = {"d_feat": 8, "heads": heads, "d_hidden": 8, "decoder_layers": 1, "encoder.layers": 1}
    model = captioner("spatial_transformer", V, 8, grid, **settings, dropout=dropout, scale=scale).train()
    mask = torch.arange(places)[None] < places - 40 if masked else None
    context, tokens = ContextSet(normal(1, places, 8).float(), grid, mask), registry_inputs()[1][:1]
    with Largest() as largest:
        model(context, tokens).hidden.sum().backward()
        model.eval()
        model.step(tokens[..., 0], model.start(context, N))
    bound = heads * BLOCK if dropout else 4 * heads * C * N * places
    assert largest.numbers <= bound < heads * places**2


@torch.no_grad()
def test_learned_positions_are_resized_for_another_grid() -> None:
    model = build(grid=(2, 3), **{"encoder.positions": "learned"})
    finer = build(grid=(4, 6), **{"encoder.positions": "learned"})
    finer.load_state_dict(model.state_dict() | {"encoder.positions.table": finer.encoder.positions.table})
    finer.encoder.positions.table.copy_(resized(model.encoder.positions.table, (2, 3), (4, 6)))
    context, tokens = inputs(grid=(4, 6))
    torch.testing.assert_close(model(context, tokens).hidden, finer(context, tokens).hidden, **CLOSE)


@torch.no_grad()
def test_more_than_max_tokens_are_refused() -> None:
    model, (context, _) = build(max_tokens=3), inputs()
    state, longest = model.start(context, N), torch.full((B, N, 3), BOS)
    for word in longest.unbind(dim=2):
        state = model.step(word, state).state
    model(context, longest)
    for refused in (
        lambda: model(context, F.pad(longest, (0, 1), value=4)),
        lambda: model.step(longest[..., 0], state),
    ):
        with pytest.raises(ValueError, match="4 input tokens"):
            refused()


@pytest.mark.parametrize("length", [1, L - 1, L + 1])
def test_another_number_of_context_vectors_is_refused(length: int) -> None:
    model, (_, tokens) = build(), inputs()
    with pytest.raises(ValueError, match=f"{length} context vectors"):
        model(ContextSet(normal(B, length, D), (1, length)), tokens)


def copy_attention(theirs: nn.MultiheadAttention, ours: nn.Module, *projections: nn.Module) -> None:
    """Attention has no biases here."""
    theirs.in_proj_weight.copy_(torch.cat([projection.linear.weight for projection in projections]))
    theirs.in_proj_bias.zero_()
    theirs.out_proj.weight.copy_(ours.output.weight)
    theirs.out_proj.bias.zero_()


def copy_layer(theirs: nn.Module, feed_forward: nn.Module, *norms: nn.Module) -> None:
    for part, ours in ((theirs.linear1, feed_forward.layers[0]), (theirs.linear2, feed_forward.layers[2])):
        part.load_state_dict(ours.state_dict())
    for number, ours in enumerate([*norms, feed_forward.norm], start=1):
        getattr(theirs, f"norm{number}").load_state_dict(ours.state_dict())


@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_it_is_the_transformer_of_pytorch(norm: str) -> None:
    """With copied weights; a last norm belongs to `pre` alone."""
    model = build(norm=norm, scale="sqrt_d", d_context=E)
    context, tokens = inputs(d=E, mask=MASK)
    sizes = {"dim_feedforward": HIDDEN, "dropout": 0.0, "batch_first": True, "norm_first": norm == "pre"}
    lasts = [ours if norm == "pre" else None for ours in (model.encoder.norm, model.norm)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(E, H, **sizes), ENCODER_LAYERS, lasts[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(E, H, **sizes), DECODER_LAYERS, lasts[1])
    for layer, ours in zip(encoder.double().eval().layers, model.encoder.layers, strict=True):
        copy_attention(layer.self_attn, ours.attention, ours.attention.project)
        copy_layer(layer, ours.feed_forward, ours.attention.norm)
    for layer, ours in zip(decoder.double().eval().layers, model.decoder, strict=True):
        inter = ours.inter_attention
        copy_attention(layer.self_attn, ours.self_attention, ours.self_attention.project)
        copy_attention(layer.multihead_attn, inter, inter.project_query, inter.project_image)
        copy_layer(layer, ours.feed_forward, ours.self_attention.norm, inter.norm)
    memory = encoder(context.vectors + table([sinusoid(k, E) for k in range(L)]), src_key_padding_mask=~MASK)
    future = ~torch.ones(C, C, dtype=torch.bool).tril()
    for j in range(N):
        words = model.embed.weight[tokens[:, j]] * math.sqrt(E) + table([sinusoid(t, E) for t in range(C)])
        expected = decoder(words, memory, tgt_mask=future, memory_key_padding_mask=~MASK)
        torch.testing.assert_close(model(context, tokens).hidden[:, j], expected, **CLOSE)
