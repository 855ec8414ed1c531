"""The spatial transformer, as it is composed, against loops over its equations; transformers against PyTorch's layers.

B images, N captions per image, C input positions, L context vectors of D features, H heads, A = d_attn, E = H A,
V words; all different primes.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from models.captioners import captioner
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.backbones.context import ContextSet
from captioning.models import Transformer
from captioning.models import transformer as transformer_module
from captioning.models.parts import encoders as encoders_module
from captioning.models.parts import multi_head as multi_head_module
from captioning.models.parts.layers import InterAttention
from captioning.tokens import BOS

B, N, C, H, A, L, D, V, HIDDEN, MAX_TOKENS = 2, 3, 5, 7, 13, 11, 17, 19, 23, 29
E = H * A
GRID = (1, L)
ENCODER_LAYERS, DECODER_LAYERS = 2, 3
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-10}
MASK = torch.tensor([[k not in (1, 7, 10) for k in range(L)], [k in (0, 2, 3, 5) for k in range(L)]])
MAPS = DECODER_LAYERS * H


def build(seed: int = 0, d_context: int = D, grid: tuple[int, int] = GRID, **changes: Any) -> Transformer:
    """In double precision, evaluating, every parameter random: norms and biases too."""
    torch.manual_seed(seed)
    settings = {
        "max_tokens": MAX_TOKENS,
        "d_feat": E,
        "heads": H,
        "d_hidden": HIDDEN,
        "decoder_layers": DECODER_LAYERS,
        "encoder.layers": ENCODER_LAYERS,
    }
    model = captioner("spatial_transformer", V, d_context, grid, **(settings | changes)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.15)
    return model


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def inputs(
    seed: int = 1, d: int = D, grid: tuple[int, int] = GRID, mask: Tensor | None = None
) -> tuple[ContextSet, Tensor]:
    torch.manual_seed(seed)
    context = ContextSet(normal(B, grid[0] * grid[1], d), grid, mask)
    tokens = torch.randint(4, V, (B, N, C))
    tokens[..., 0] = BOS
    return context, tokens


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
    causal = torch.tensor([[k <= t for k in range(count)] for t in range(count)])
    maps = []
    for i in range(DECODER_LAYERS):
        x, _ = attend(x, x, f"decoder.{i}.self_attention", text_tau, causal)
        x, weights = attend(x, image, f"decoder.{i}.inter_attention", image_tau, keep)
        x = feed_forward(x, f"decoder.{i}.feed_forward")
        maps.append(weights)
    return x, x @ p["output.weight"].T + p["output.bias"], torch.stack(maps)


def check(model: Transformer, context: ContextSet, tokens: Tensor, **how: Any) -> None:
    """The whole pass of every caption, its logits and every head's map, equal the recomputed ones."""
    output = model(context, tokens, need_weights=True)
    fused = model(context, tokens)
    assert fused.attention is None
    logits = model.readout(output.hidden)
    maps = model.attention_maps(context, tokens)["inter"]
    b, n, c = tokens.shape
    assert output.hidden.shape == (b, n, c, E)
    assert logits.shape == (b, n, c, V)
    assert output.attention.shape == (b, n, c, context.vectors.shape[1])
    for i in range(b):
        keep = None if context.mask is None else context.mask[i]
        for j in range(n):
            hidden, expected, weights = recomputed(model, context.vectors[i], tokens[i, j], keep, **how)
            torch.testing.assert_close(output.hidden[i, j], hidden, **CLOSE)
            torch.testing.assert_close(fused.hidden[i, j], hidden, **CLOSE)
            torch.testing.assert_close(logits[i, j], expected, **CLOSE)
            torch.testing.assert_close(maps[i, j], weights.flatten(0, 1).transpose(0, 1), **CLOSE)
            torch.testing.assert_close(output.attention[i, j], weights[-1].mean(dim=0), **CLOSE)  # Figure 2


# The whole pass


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@pytest.mark.parametrize("scale", ["sqrt_len_d", "sqrt_d"])
@torch.no_grad()
def test_whole_pass(mask: Tensor | None, scale: str) -> None:
    check(build(scale=scale), *inputs(mask=mask), scale=scale)


@torch.no_grad()
def test_whole_pass_without_projection() -> None:
    check(build(d_context=E), *inputs(d=E))


@torch.no_grad()
def test_positions_follow_the_rows_of_the_grid() -> None:
    grid = (3, 5)
    rows = [[sinusoid(5 * row + column, E) for column in range(5)] for row in range(3)]
    check(build(grid=grid), *inputs(grid=grid), image_positions=[entry for row in rows for entry in row])


@torch.no_grad()
def test_positions_in_two_dimensions() -> None:
    grid, half = (3, 5), E // 2
    rows = [sinusoid(row, half) + sinusoid(column, E - half) for row in range(3) for column in range(5)]
    check(build(grid=grid, **{"encoder.positions": "2d"}), *inputs(grid=grid), image_positions=rows)


@pytest.mark.parametrize("length", [1, 2, MAX_TOKENS])
@torch.no_grad()
def test_text_temperature_does_not_know_the_length(length: int) -> None:
    model, (context, _) = build(), inputs()
    tokens = torch.randint(4, V, (B, 1, length))
    check(model, context, tokens)  # recomputed with max_tokens for every length
    hidden = model(context, tokens).hidden
    torch.testing.assert_close(model(context, tokens[..., :1]).hidden, hidden[:, :, :1], **CLOSE)


def test_text_temperature_by_hand() -> None:
    assert Transformer(5, 8, (1, 2), max_tokens=5, d_feat=8, heads=2).text_tau == 3  # sqrt(5 + 4)
    assert Transformer(5, 8, (1, 2), max_tokens=5, d_feat=8, heads=2, scale="sqrt_d").text_tau == 2


@pytest.mark.parametrize("scale", ["sqrt_len_d", "sqrt_d"])
@torch.no_grad()
def test_image_temperature_counts_the_unmasked_vectors(scale: str) -> None:
    model = build(scale=scale)
    tau = model.encode(inputs()[0]).tau
    assert tau == math.sqrt(A + (L if scale == "sqrt_len_d" else 0))
    tau = model.encode(inputs(mask=MASK)[0]).tau
    if scale == "sqrt_d":
        assert tau == math.sqrt(A)
    else:
        assert tau.shape == (B, 1, 1, 1)
        assert tau.flatten().tolist() == pytest.approx([math.sqrt(8 + A), math.sqrt(4 + A)], abs=1e-15)


# What it is made of


def test_published_size() -> None:
    with torch.device("meta"):
        model = captioner("spatial_transformer", 10_000, 512, (14, 14))
    embedding = 10_000 * 512
    attention = 4 * 512 * 512  # W_Q, W_K, W_V of all heads and W_O, no biases
    norm = 2 * 512
    feed_forward = 512 * 1024 + 1024 + 1024 * 512 + 512
    encoder_layer = attention + norm + feed_forward + norm
    decoder_layer = 2 * (attention + norm) + feed_forward + norm
    output = 512 * 10_000 + 10_000  # its own weights, not those of the embedding
    total = embedding + 2 * encoder_layer + 4 * decoder_layer + output
    assert total == 27_052_816
    assert sum(parameter.numel() for parameter in model.parameters()) == total
    assert len(model.encoder.layers) == 2
    assert len(model.decoder) == 4
    assert (model.d_feat, model.d_attn, model.max_tokens, model.dropout) == (512, 64, 15, 0.1)
    assert {layer.inter_attention.project_query.heads for layer in model.decoder} == {8}
    assert {layer.feed_forward.layers[0].out_features for layer in [*model.encoder.layers, *model.decoder]} == {1024}
    assert model.text_tau == math.sqrt(15 + 64)
    assert not [buffer for buffer in model.state_dict() if "position" in buffer]


def test_projection_only_where_the_sizes_differ() -> None:
    with_projection = {name for name, _ in build().named_parameters()}
    without = {name for name, _ in build(d_context=E).named_parameters()}
    assert with_projection - without == {"encoder.project.weight", "encoder.project.bias"}
    assert without < with_projection
    assert build().encoder.project.weight.shape == (E, D)


def test_output_weights_are_not_those_of_the_embedding() -> None:
    model = build()
    assert model.output.weight.data_ptr() != model.embed.weight.data_ptr()
    hidden = model(*inputs()).hidden.detach()
    model.readout(hidden).sum().backward()
    assert model.embed.weight.grad is None
    assert model.output.weight.grad.any()


# Dropout


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[tuple[int, ...], float]]]:
    """Shape and probability of each use of dropout, which becomes a function that anyone can repeat."""
    calls: list[tuple[tuple[int, ...], float]] = []

    def visible(x: Tensor, p: float, training: bool) -> Tensor:
        if not training or p == 0.0:
            return x
        calls.append((tuple(x.shape), p))
        return repeatable(x)

    def refused(*_: Any, **__: Any) -> None:
        pytest.fail("dropout of another kind")

    fused = F.scaled_dot_product_attention

    def without_dropout(*args: Any, dropout_p: float = 0.0, **named: Any) -> Tensor:
        assert dropout_p == 0.0
        assert len(args) < 5
        return fused(*args, **named)

    monkeypatch.setattr(multi_head_module, "dropout", visible)
    monkeypatch.setattr(transformer_module, "dropout", visible)
    monkeypatch.setattr(encoders_module, "dropout", visible)
    monkeypatch.setattr(F, "scaled_dot_product_attention", without_dropout)
    for name in ("dropout", "alpha_dropout", "dropout1d", "dropout2d", "feature_alpha_dropout"):
        monkeypatch.setattr(F, name, refused)
    monkeypatch.setattr(torch, "dropout", refused)
    monkeypatch.setattr(torch, "bernoulli", refused)
    yield calls  # noqa: PT022


def repeatable(x: Tensor) -> Tensor:
    """In place of dropout: elementwise, so it does not mind the shape, and not linear, so it must be at the place."""
    return x * (1.5 + 0.25 * x.cos())


WEIGHTS = [(B, H, L, L)] * ENCODER_LAYERS
for _ in range(DECODER_LAYERS):
    WEIGHTS += [(B * N, H, C, C), (B, H, N * C, L)]


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@torch.no_grad()
def test_dropout_is_at_three_places(mask: Tensor | None, dropped: list[tuple[tuple[int, ...], float]]) -> None:
    model = build(dropout=0.25).train()
    context, tokens = inputs(mask=mask)
    model(context, tokens)
    places = [(B, L, E), (B, N, C, E), *WEIGHTS]  # image features, caption embeddings, attention weights
    assert sorted(dropped) == sorted((shape, 0.25) for shape in places)
    check(model, context, tokens, drop=repeatable)  # and they are where the recomputed pass has them


@torch.no_grad()
def test_real_dropout_is_random_and_spares_the_pictures() -> None:
    model, (context, tokens) = build(dropout=0.5).train(), inputs()
    output = model(context, tokens, need_weights=True)
    assert not torch.equal(model(context, tokens).hidden, output.hidden)
    torch.testing.assert_close(output.attention.sum(dim=-1), torch.ones(B, N, C).double(), **CLOSE)
    model.eval()
    assert torch.equal(model(context, tokens).hidden, model(context, tokens).hidden)


@torch.no_grad()
def test_an_image_is_encoded_once_for_its_captions(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    original = InterAttention.image

    def counted(self: InterAttention, encoded: Tensor) -> Any:
        shapes.append(tuple(encoded.shape))
        return original(self, encoded)

    monkeypatch.setattr(InterAttention, "image", counted)
    model, (context, tokens) = build(), inputs()
    model(context, tokens)
    assert shapes == [(B, L, E)] * DECODER_LAYERS
    shapes.clear()
    state = model.start(context, N)
    for t in range(C):
        state = model.step(tokens[..., t], state).state
    assert shapes == [(B, L, E)] * DECODER_LAYERS


# Refusals


@torch.no_grad()
def test_more_than_max_tokens_are_refused() -> None:
    model, (context, _) = build(max_tokens=3), inputs()
    message = r"4 input tokens.*max_tokens=3.*Decode fewer words or train"
    for verb in (model, model.attention_maps):
        verb(context, torch.full((B, N, 3), BOS))
        with pytest.raises(ValueError, match=message):
            verb(context, torch.full((B, N, 4), BOS))
    state = model.start(context, N)
    for _ in range(3):
        state = model.step(torch.full((B, N), BOS), state).state
    with pytest.raises(ValueError, match=message):
        model.step(torch.full((B, N), BOS), state)


@pytest.mark.parametrize("length", [1, L - 1, L + 1])
@torch.no_grad()
def test_another_number_of_context_vectors_is_refused(length: int) -> None:
    model, (_, tokens) = build(), inputs()
    context = ContextSet(normal(B, length, D), (1, length))
    for verb in (lambda: model(context, tokens), lambda: model.start(context, 1), lambda: model.encode(context)):
        with pytest.raises(ValueError, match=rf"{length} context vectors came.*built for {L}"):
            verb()


@pytest.mark.parametrize(("part", "setting"), [("d_feat", "heads"), ("encoder.d_feat", "encoder.heads")])
def test_heads_that_do_not_share_the_features_are_refused(part: str, setting: str) -> None:
    with pytest.raises(Exception, match=r"d_feat is 91 and heads is 2; d_feat must be a multiple of heads"):
        build(**{part: 91, setting: 2})


# Against PyTorch's own layers


@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_it_is_the_transformer_of_pytorch(norm: str) -> None:
    """With copied weights; attention has no biases here. A last norm belongs to `pre` alone."""
    model = build(norm=norm, scale="sqrt_d", d_context=E)
    context, tokens = inputs(d=E, mask=MASK)
    sizes = {"dim_feedforward": HIDDEN, "dropout": 0.0, "batch_first": True, "norm_first": norm == "pre"}
    last = [None, None] if norm == "post" else [nn.LayerNorm(E), nn.LayerNorm(E)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(E, H, **sizes), ENCODER_LAYERS, last[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(E, H, **sizes), DECODER_LAYERS, last[1])
    for theirs, ours in ((encoder.double().eval(), model.encoder.norm), (decoder.double().eval(), model.norm)):
        if theirs.norm:
            copy_norm(theirs.norm, ours)
    for layer, ours in zip(encoder.layers, model.encoder.layers, strict=True):
        copy_attention(layer.self_attn, ours.attention.project, ours.attention.output)
        copy_feed_forward(layer, ours.feed_forward)
        copy_norm(layer.norm1, ours.attention.norm)
        copy_norm(layer.norm2, ours.feed_forward.norm)
    for layer, ours in zip(decoder.layers, model.decoder, strict=True):
        inter = ours.inter_attention
        copy_attention(layer.self_attn, ours.self_attention.project, ours.self_attention.output)
        both = torch.cat((inter.project_query.linear.weight, inter.project_image.linear.weight))
        layer.multihead_attn.in_proj_weight.copy_(both)
        layer.multihead_attn.in_proj_bias.zero_()
        layer.multihead_attn.out_proj.weight.copy_(inter.output.weight)
        layer.multihead_attn.out_proj.bias.zero_()
        copy_feed_forward(layer, ours.feed_forward)
        copy_norm(layer.norm1, ours.self_attention.norm)
        copy_norm(layer.norm2, inter.norm)
        copy_norm(layer.norm3, ours.feed_forward.norm)
    source = context.vectors + table([sinusoid(k, E) for k in range(L)])
    memory = encoder(source, src_key_padding_mask=~MASK)
    for j in range(N):
        words = model.embed.weight[tokens[:, j]] * math.sqrt(E) + table([sinusoid(t, E) for t in range(C)])
        future = ~torch.ones(C, C, dtype=torch.bool).tril()
        expected = decoder(words, memory, tgt_mask=future, memory_key_padding_mask=~MASK)
        torch.testing.assert_close(model(context, tokens).hidden[:, j], expected, **CLOSE)


def copy_norm(theirs: nn.LayerNorm, ours: nn.LayerNorm) -> None:
    theirs.load_state_dict(ours.state_dict())


def copy_attention(theirs: nn.MultiheadAttention, project: nn.Module, output: nn.Linear) -> None:
    theirs.in_proj_weight.copy_(project.linear.weight)
    theirs.in_proj_bias.zero_()
    theirs.out_proj.weight.copy_(output.weight)
    theirs.out_proj.bias.zero_()


def copy_feed_forward(theirs: nn.Module, ours: nn.Module) -> None:
    theirs.linear1.load_state_dict(ours.layers[0].state_dict())
    theirs.linear2.load_state_dict(ours.layers[2].state_dict())
