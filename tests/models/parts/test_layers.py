"""The sublayers against loops over Eq. 1-4 with their own weights.

B images, N captions, T positions, L context vectors, H heads, A features per head, all different primes.
"""

import math
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from captioning.models.parts.layers import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    InterAttention,
    KeyValue,
    SelfAttention,
)
from captioning.models.parts.multi_head import causal_mask

B, N, T, L, H, A, HIDDEN = 2, 3, 5, 7, 11, 13, 17
E = H * A
M = TypeVar("M", bound=nn.Module)
CLOSE = {"rtol": 1e-11, "atol": 1e-11}


def randomised(module: M) -> M:
    """In double precision, every parameter random: norms and biases too."""
    module = module.double().eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.1)
    return module


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * norm.weight + norm.bias


def attention(x: Tensor, y: Tensor, w_qkv: Tensor, w_o: Tensor, tau: float, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. 1-3 for one group and head by head: queries from x `[Q, E]`, keys and values from y `[K, E]`."""
    heads, maps = [], []
    for h in range(H):
        w_q, w_k, w_v = (w_qkv[index * E + h * A : index * E + (h + 1) * A].T for index in range(3))
        scores = (x @ w_q) @ (y @ w_k).T / tau
        exps = scores.exp() * mask
        maps.append(exps / exps.sum(dim=1, keepdim=True))
        heads.append(maps[-1] @ (y @ w_v))
    return torch.cat(heads, dim=1) @ w_o.T, torch.stack(maps)


def feed_forward(x: Tensor, module: FeedForward) -> Tensor:
    first, _, second = module.layers
    hidden = (x @ first.weight.T + first.bias).clamp(min=0)
    return layer_norm(hidden @ second.weight.T + second.bias + x, module.norm)


def self_attention(x: Tensor, module: SelfAttention, tau: float, mask: Tensor) -> Tensor:
    out, _ = attention(x, x, module.project.linear.weight, module.output.weight, tau, mask)
    return layer_norm(out + x, module.norm)


def inter_attention(x: Tensor, y: Tensor, module: InterAttention, tau: float, mask: Tensor) -> tuple[Tensor, Tensor]:
    weight = torch.cat((module.project_query.linear.weight, module.project_image.linear.weight))
    out, maps = attention(x, y, weight, module.output.weight, tau, mask)
    return layer_norm(out + x, module.norm), maps


def names(module: nn.Module) -> set[str]:
    return {name for name, _ in module.named_parameters()}


def test_feed_forward_is_equation_4_with_biases() -> None:
    torch.manual_seed(0)
    module = randomised(FeedForward(E, HIDDEN))
    assert {tuple(parameter.shape) for parameter in module.layers.parameters()} == {
        (HIDDEN, E),
        (HIDDEN,),
        (E, HIDDEN),
        (E,),
    }
    x = normal(B, T, E)
    torch.testing.assert_close(module(x), feed_forward(x, module), **CLOSE)


def test_attention_has_no_biases() -> None:
    norm = {"norm.weight", "norm.bias"}
    assert names(SelfAttention(E, H, 0.1)) == {"project.linear.weight", "output.weight"} | norm
    assert (
        names(InterAttention(E, E, H, 0.1))
        == {
            "project_query.linear.weight",
            "project_image.linear.weight",
            "output.weight",
        }
        | norm
    )


@pytest.mark.parametrize("causal", [True, False])
def test_self_attention(causal: bool) -> None:
    torch.manual_seed(1)
    module = randomised(SelfAttention(E, H, 0.1))
    x = normal(B, T, E)
    mask = causal_mask(T) if causal else None
    full = causal_mask(T) if causal else torch.ones(T, T)
    expected = torch.stack([self_attention(x[b], module, 1.7, full) for b in range(B)])
    torch.testing.assert_close(module(x, 1.7, mask)[0], expected, **CLOSE)


def test_self_attention_step_by_step() -> None:
    torch.manual_seed(2)
    module = randomised(SelfAttention(E, H, 0.1))
    x = normal(B, T, E)
    past = None
    for t in range(T):
        out, past = module(x[:, t : t + 1], 1.7, past=past)
        assert past.key.shape == past.value.shape == (B, H, t + 1, A)
        expected = torch.stack(
            [self_attention(x[b, : t + 1], module, 1.7, torch.ones(t + 1, t + 1))[t] for b in range(B)]
        )
        torch.testing.assert_close(out[:, 0], expected, **CLOSE)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_inter_attention_adds_the_caption(need_weights: bool, masked: bool) -> None:
    torch.manual_seed(3)
    module = randomised(InterAttention(E, E, H, 0.1))
    x, y = normal(B, T, E), normal(B, L, E)
    mask = torch.ones(B, L, dtype=torch.bool)
    taus = [1.3, 2.9]
    if masked:
        mask[0, 2], mask[1, [0, 3, 6]] = False, False
        out, weights = module(
            x,
            module.image(y),
            torch.tensor(taus, dtype=torch.float64).view(B, 1, 1, 1),
            mask[:, None, None],
            need_weights,
        )
    else:
        taus = [1.3, 1.3]
        out, weights = module(x, module.image(y), 1.3, None, need_weights)
    for b in range(B):
        expected, maps = inter_attention(x[b], y[b], module, taus[b], mask[b])
        torch.testing.assert_close(out[b], expected, **CLOSE)
        if need_weights:
            torch.testing.assert_close(weights[b], maps, **CLOSE)
    assert (weights is None) != need_weights


def test_keys_and_values_of_an_image() -> None:
    torch.manual_seed(4)
    module = randomised(InterAttention(E, E, H, 0.1))
    image = module.image(normal(B, L, E))
    assert isinstance(image, KeyValue)
    assert image.key.shape == image.value.shape == (B, H, L, A)


def test_encoder_layer_is_self_attention_then_feed_forward() -> None:
    torch.manual_seed(5)
    layer = randomised(EncoderLayer(E, H, HIDDEN, 0.1))
    assert {name.split(".")[0] for name in names(layer)} == {"attention", "feed_forward"}
    x = normal(B, L, E)
    expected = torch.stack([self_attention(x[b], layer.attention, 3.1, torch.ones(L, L)) for b in range(B)])
    torch.testing.assert_close(layer(x, 3.1, None), feed_forward(expected, layer.feed_forward), **CLOSE)


def decoder_layer(layer: DecoderLayer, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """One caption `[T, E]` of one image `[L, E]`, text tau 1.9 and image tau 2.3."""
    x = self_attention(x, layer.self_attention, 1.9, causal_mask(len(x)))
    x, maps = inter_attention(x, y, layer.inter_attention, 2.3, torch.ones(len(y)))
    return feed_forward(x, layer.feed_forward), maps


def test_decoder_layer_is_self_attention_then_inter_attention_then_feed_forward() -> None:
    torch.manual_seed(6)
    layer = randomised(DecoderLayer(E, E, H, HIDDEN, 0.1))
    assert {name.split(".")[0] for name in names(layer)} == {"self_attention", "inter_attention", "feed_forward"}
    x, y = normal(B, N, T, E), normal(B, L, E)
    image, mask = layer.inter_attention.image(y), causal_mask(T)
    out, _, weights = layer(x, 1.9, mask, None, image, 2.3, None, need_weights=True)
    assert weights.shape == (B, N, T, H, L)
    for b in range(B):
        for n in range(N):
            expected, maps = decoder_layer(layer, x[b, n], y[b])
            torch.testing.assert_close(out[b, n], expected, **CLOSE)
            torch.testing.assert_close(weights[b, n], maps.transpose(0, 1), **CLOSE)
    fused, _, none = layer(x, 1.9, mask, None, image, 2.3, None, need_weights=False)
    torch.testing.assert_close(fused, out, **CLOSE)
    assert none is None


def test_decoder_layer_step_by_step() -> None:
    torch.manual_seed(7)
    layer = randomised(DecoderLayer(E, E, H, HIDDEN, 0.1))
    x, y = normal(B, N, T, E), normal(B, L, E)
    image, past = layer.inter_attention.image(y), None
    for t in range(T):
        out, past, weights = layer(x[:, :, t : t + 1], 1.9, None, past, image, 2.3, None, need_weights=True)
        assert past.key.shape == past.value.shape == (B, N, H, t + 1, A)
        assert weights.shape == (B, N, 1, H, L)
        for b in range(B):
            for n in range(N):
                expected, maps = decoder_layer(layer, x[b, n, : t + 1], y[b])
                torch.testing.assert_close(out[b, n, 0], expected[t], **CLOSE)
                torch.testing.assert_close(weights[b, n, 0], maps[:, t], **CLOSE)


def test_the_loops_know_a_number_worked_out_on_paper() -> None:
    # x = (-1, 1), W_1 = (1, 0) b_1 = 3, so the hidden unit is ReLU(-1 + 3) = 2; W_2 = (1, 2)^T, b_2 = (0.5, -1): the
    # sum with x is (1.5, 4), centred (-1.25, 1.25), variance 1.5625.
    module = FeedForward(2, 1).double()
    first, _, second = module.layers
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 0.0]]))
        first.bias.fill_(3)
        second.weight.copy_(torch.tensor([[1.0], [2.0]]))
        second.bias.copy_(torch.tensor([0.5, -1.0]))
    expected = 1.25 / math.sqrt(1.5625 + 1e-5)
    assert module(torch.tensor([-1.0, 1.0]).double()).tolist() == pytest.approx([-expected, expected], abs=1e-12)
