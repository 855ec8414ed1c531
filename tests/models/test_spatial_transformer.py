"""The spatial transformer against section 1.1 of the design: the whole pass recomputed with loops, and its laws.

B images, N captions per image, C input positions, L context vectors of D features, H heads, A = d_attn, E = H A,
V words; all different primes.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.backbones.context import ContextSet
from captioning.models import SpatialTransformer
from captioning.models import attention as attention_module
from captioning.models import spatial_transformer as spatial_transformer_module
from captioning.models.transformer import InterAttention
from captioning.tokens import BOS, PAD

B, N, C, H, A, L, D, V, HIDDEN, MAX_TOKENS = 2, 3, 5, 7, 13, 11, 17, 19, 23, 29
E = H * A
GRID = (1, L)
ENCODER_LAYERS, DECODER_LAYERS = 2, 3
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-10}
MASK = torch.tensor([[k not in (1, 7, 10) for k in range(L)], [k in (0, 2, 3, 5) for k in range(L)]])
MAPS = DECODER_LAYERS * H


def build(seed: int = 0, **changes: Any) -> SpatialTransformer:
    """In double precision, evaluating, every parameter random: norms and biases too."""
    torch.manual_seed(seed)
    arguments = {
        "vocab_size": V,
        "d_context": D,
        "grid": GRID,
        "max_tokens": MAX_TOKENS,
        "d_feat": E,
        "heads": H,
        "d_hidden": HIDDEN,
        "encoder_layers": ENCODER_LAYERS,
        "decoder_layers": DECODER_LAYERS,
    }
    model = SpatialTransformer(**(arguments | changes)).double().eval()
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
    model: SpatialTransformer,
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
    image = vectors if vectors.shape[1] == E else vectors @ p["project.weight"].T + p["project.bias"]
    image = drop(image + table(image_positions or [sinusoid(k, E) for k in range(length)]))
    for i in range(ENCODER_LAYERS):
        image, _ = attend(image, image, f"encoder.{i}.attention", image_tau, keep)
        image = feed_forward(image, f"encoder.{i}.feed_forward")
    x = drop(p["embed.weight"][tokens] * math.sqrt(E) + table([sinusoid(t, E) for t in range(count)]))
    causal = torch.tensor([[k <= t for k in range(count)] for t in range(count)])
    maps = []
    for i in range(DECODER_LAYERS):
        x, _ = attend(x, x, f"decoder.{i}.self_attention", text_tau, causal)
        x, weights = attend(x, image, f"decoder.{i}.inter_attention", image_tau, keep)
        x = feed_forward(x, f"decoder.{i}.feed_forward")
        maps.append(weights)
    return x, x @ p["output.weight"].T + p["output.bias"], torch.stack(maps)


def check(model: SpatialTransformer, context: ContextSet, tokens: Tensor, **how: Any) -> None:
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
    check(build(grid=grid, image_positions="2d"), *inputs(grid=grid), image_positions=rows)


@torch.no_grad()
def test_positions_are_entry_by_entry_those_of_vaswani() -> None:
    model = build(grid=(3, 5))
    for positions, count in ((model.image_positions, 15), (model.text_positions, MAX_TOKENS)):
        assert positions.shape == (count, E)
        expected = torch.tensor([sinusoid(t, E) for t in range(count)], dtype=torch.float64)
        torch.testing.assert_close(positions, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("length", [1, 2, MAX_TOKENS])
@torch.no_grad()
def test_text_temperature_does_not_know_the_length(length: int) -> None:
    model, (context, _) = build(), inputs()
    tokens = torch.randint(4, V, (B, 1, length))
    check(model, context, tokens)  # recomputed with max_tokens for every length
    hidden = model(context, tokens).hidden
    torch.testing.assert_close(model(context, tokens[..., :1]).hidden, hidden[:, :, :1], **CLOSE)


def test_text_temperature_by_hand() -> None:
    assert SpatialTransformer(5, 8, (1, 2), max_tokens=5, d_feat=8, heads=2).text_tau == 3  # sqrt(5 + 4)
    assert SpatialTransformer(5, 8, (1, 2), max_tokens=5, d_feat=8, heads=2, scale="sqrt_d").text_tau == 2


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


@torch.no_grad()
def test_a_mask_of_ones_is_no_mask() -> None:
    model, (context, tokens) = build(), inputs()
    masked = ContextSet(context.vectors, GRID, torch.ones(B, L, dtype=torch.bool))
    torch.testing.assert_close(model(masked, tokens).hidden, model(context, tokens).hidden, **CLOSE)


# What it is made of


def test_published_size() -> None:
    model = SpatialTransformer(10_000, 512, (14, 14))
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
    assert len(model.encoder) == 2
    assert len(model.decoder) == 4
    assert (model.d_feat, model.d_attn, model.max_tokens, model.dropout) == (512, 64, 15, 0.1)
    assert {layer.inter_attention.project_query.heads for layer in model.decoder} == {8}
    assert {layer.feed_forward.layers[0].out_features for layer in [*model.encoder, *model.decoder]} == {1024}
    assert model.text_tau == math.sqrt(15 + 64)
    assert not [buffer for buffer in model.state_dict() if "position" in buffer]


def test_projection_only_where_the_sizes_differ() -> None:
    with_projection = {name for name, _ in build().named_parameters()}
    without = {name for name, _ in build(d_context=E).named_parameters()}
    assert with_projection - without == {"project.weight", "project.bias"}
    assert without < with_projection
    assert build().project.weight.shape == (E, D)


def test_output_weights_are_not_those_of_the_embedding() -> None:
    model = build()
    assert model.output.weight.data_ptr() != model.embed.weight.data_ptr()
    hidden = model(*inputs()).hidden.detach()
    model.readout(hidden).sum().backward()
    assert model.embed.weight.grad is None
    assert model.output.weight.grad.any()


def test_every_parameter_learns() -> None:
    model = build()
    model.readout(model(*inputs(mask=MASK)).hidden).cos().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


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

    monkeypatch.setattr(attention_module, "dropout", visible)
    monkeypatch.setattr(spatial_transformer_module, "dropout", visible)
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
def test_dropout_while_training_step_by_step(dropped: list[tuple[tuple[int, ...], float]]) -> None:
    model = build(dropout=0.25).train()
    context, tokens = inputs()
    expected = model.readout(model(context, tokens).hidden)
    dropped.clear()
    state = model.start(context, N)
    assert dropped == [((B, L, E), 0.25)] + [((B, H, L, L), 0.25)] * ENCODER_LAYERS
    for t in range(C):
        step = model.step(tokens[..., t], state)
        state = step.state
        torch.testing.assert_close(step.logits, expected[:, :, t], **CLOSE)


@pytest.mark.parametrize(("p", "training"), [(0.25, False), (0.0, True)])
@torch.no_grad()
def test_no_dropout(p: float, training: bool, dropped: list[tuple[tuple[int, ...], float]]) -> None:
    model = build(dropout=p).train(training)
    check(model, *inputs())
    assert dropped == []


@torch.no_grad()
def test_real_dropout_is_random_and_spares_the_pictures() -> None:
    model, (context, tokens) = build(dropout=0.5).train(), inputs()
    output = model(context, tokens, need_weights=True)
    assert not torch.equal(model(context, tokens).hidden, output.hidden)
    torch.testing.assert_close(output.attention.sum(dim=-1), torch.ones(B, N, C).double(), **CLOSE)
    model.eval()
    assert torch.equal(model(context, tokens).hidden, model(context, tokens).hidden)


# Laws


class Given(nn.Module):
    """In place of an embedding: what the words are is given, so that it can be differentiated."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, _: Tensor) -> Tensor:
        return self.rows


@pytest.mark.parametrize("need_weights", [True, False])
def test_no_gradient_from_future_tokens_or_other_captions(need_weights: bool) -> None:
    model, (context, tokens) = build(), inputs()
    rows = normal(B, N, C, E).requires_grad_()
    vectors = context.vectors.requires_grad_()
    model.embed = Given(rows)
    output = model(ContextSet(vectors, GRID), tokens, need_weights)
    for t in range(C):
        seen = [output.hidden[1, 2, t]] + ([output.attention[1, 2, t]] if need_weights else [])
        loss = torch.cat(seen).cos().sum()
        rows_grad, vectors_grad = torch.autograd.grad(loss, (rows, vectors), retain_graph=True)
        assert rows_grad[1, 2, : t + 1].abs().amin() > 0
        rows_grad[1, 2, : t + 1] = 0
        assert not rows_grad.any(), t  # nothing later, no other caption, no other image
        assert vectors_grad[1].abs().amin() > 0
        assert not vectors_grad[0].any()


@torch.no_grad()
def test_padding_changes_nothing_before_it() -> None:
    model, (context, tokens) = build(), inputs()
    padded = F.pad(tokens, (0, 3), value=PAD)
    exact = model(context, tokens, need_weights=True)
    output = model(context, padded, need_weights=True)
    torch.testing.assert_close(output.hidden[:, :, :C], exact.hidden, **CLOSE)
    torch.testing.assert_close(output.attention[:, :, :C], exact.attention, **CLOSE)


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@pytest.mark.parametrize("training", [True, False])
def test_a_missing_caption_makes_no_nan(mask: Tensor | None, training: bool) -> None:
    model, (context, tokens) = build().train(training), inputs(mask=mask)
    tokens[1, 0] = PAD
    context.vectors.requires_grad_()
    output = model(context, tokens, need_weights=training)
    logits = model.readout(output.hidden)
    assert logits.isfinite().all()
    weight = torch.ones(B, N, 1)
    weight[1, 0] = 0
    (logits.log_softmax(dim=-1)[..., 4] * weight).sum().backward()
    assert context.vectors.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@torch.no_grad()
def test_a_missing_caption_changes_no_other() -> None:
    model, (context, tokens) = build(), inputs()
    expected = model(context, tokens).hidden
    tokens[1, 0] = PAD
    hidden = model(context, tokens).hidden
    others = torch.ones(B, N, dtype=torch.bool)
    others[1, 0] = False
    torch.testing.assert_close(hidden[others], expected[others], **CLOSE)


@pytest.mark.parametrize("scale", ["sqrt_len_d", "sqrt_d"])
def test_masked_vectors_have_no_influence(scale: str) -> None:
    model, (context, tokens) = build(scale=scale), inputs(mask=MASK)
    vectors = context.vectors.requires_grad_()
    output = model(context, tokens, need_weights=True)
    assert (output.attention.transpose(1, 3)[~MASK] == 0).all()
    (grad,) = torch.autograd.grad(output.hidden.cos().sum() + output.attention.square().sum(), vectors)
    assert not grad[~MASK].any()
    assert grad[MASK].abs().amin() > 0
    other = torch.where(MASK[:, :, None], vectors, 100 * normal(B, L, D))
    changed = model(ContextSet(other, GRID, MASK), tokens, need_weights=True)
    torch.testing.assert_close(changed.hidden, output.hidden, **CLOSE)
    torch.testing.assert_close(changed.attention, output.attention, **CLOSE)


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@torch.no_grad()
def test_step_by_step_equals_parallel(mask: Tensor | None) -> None:
    model, (context, tokens) = build(), inputs(mask=mask)
    expected = model(context, tokens, need_weights=True)
    logits = model.readout(expected.hidden)
    state = model.start(context, N)
    for t in range(C):
        step = model.step(tokens[..., t], state)
        torch.testing.assert_close(step.logits, logits[:, :, t], **CLOSE)
        torch.testing.assert_close(step.attention, expected.attention[:, :, t], **CLOSE)
        state = step.state


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@torch.no_grad()
def test_step_by_step_equals_parallel_through_reorder(mask: Tensor | None) -> None:
    model, (context, _) = build(), inputs(mask=mask)
    generator = torch.Generator().manual_seed(2)
    parents = [  # from 1 to 3, 3, 5 and 2 hypotheses: copies, swaps, deaths; the images go different ways
        [[0, 0, 0], [0, 0, 0]],
        [[2, 0, 0], [1, 1, 2]],
        [[1, 0, 2, 1, 0], [2, 2, 2, 0, 1]],
        [[4, 0], [3, 3]],
    ]
    history = torch.full((B, 1, 1), BOS)
    state = model.start(context, 1)
    image = state.image
    for chosen in [*parents, None]:
        before = state
        step = model.step(history[..., -1], state)
        output = model(context, history, need_weights=True)
        torch.testing.assert_close(step.logits, model.readout(output.hidden[:, :, -1]), **CLOSE)
        torch.testing.assert_close(step.attention, output.attention[:, :, -1], **CLOSE)
        again = model.step(history[..., -1], before)  # a state is a value: stepping from it twice is the same
        assert torch.equal(again.logits, step.logits)
        if chosen is None:
            break
        rows = torch.tensor(chosen)
        state = step.state.reorder(rows)
        assert state.image is image  # what belongs to the image is stored once
        assert {tuple(x.shape) for pair in state.image.layers for x in pair} == {(B, H, L, A)}
        words = torch.randint(4, V, (B, rows.shape[1], 1), generator=generator)
        history = torch.cat((history.gather(1, rows[:, :, None].expand(-1, -1, history.shape[2])), words), dim=2)


@torch.no_grad()
def test_images_and_captions_are_apart() -> None:
    model, (context, tokens) = build(), inputs(mask=MASK)
    together = model(context, tokens, need_weights=True)
    for i in range(B):
        for j in range(N):
            alone = model(
                ContextSet(context.vectors[i : i + 1], GRID, MASK[i : i + 1]),
                tokens[i : i + 1, j : j + 1],
                need_weights=True,
            )
            torch.testing.assert_close(together.hidden[i, j], alone.hidden[0, 0], **CLOSE)
            torch.testing.assert_close(together.attention[i, j], alone.attention[0, 0], **CLOSE)


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@torch.no_grad()
def test_attention_maps(mask: Tensor | None) -> None:
    model, (context, tokens) = build(), inputs(mask=mask)
    maps = model.attention_maps(context, tokens)
    assert list(maps) == ["inter"]
    inter = maps["inter"]
    assert inter.shape == (B, N, C, MAPS, L)
    torch.testing.assert_close(inter.sum(dim=-1), torch.ones(B, N, C, MAPS).double(), **CLOSE)
    attention = model(context, tokens, need_weights=True).attention
    torch.testing.assert_close(attention.sum(dim=-1), torch.ones(B, N, C).double(), **CLOSE)
    torch.testing.assert_close(inter[..., -H:, :].mean(dim=-2), attention, **CLOSE)


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 2}, "d_feat is 91 and heads is 2"),
        ({"decoder_layers": 0}, "decoder_layers is 0"),
        ({"scale": "sqrt"}, "scale is 'sqrt'; allowed: sqrt_len_d, sqrt_d"),
        ({"image_positions": "3d"}, "image_positions is '3d'; allowed: 1d, 2d"),
        ({"dropout": 10}, r"dropout is 10; .*0 <= dropout < 1"),
        ({"dropout": 1.0}, r"dropout is 1.0; .*0 <= dropout < 1"),
        ({"dropout": -0.1}, r"dropout is -0.1; .*0 <= dropout < 1"),
    ],
)
def test_bad_arguments_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(**changes)
