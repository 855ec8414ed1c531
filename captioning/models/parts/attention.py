"""Attention of a recurrent decoder: from scores to weights to the context vector of a step.

B images, N captions per image, L context vectors of D features, values of Z features, queries of n
features, H heads.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet, Grid
from captioning.config.types import Positive, Share, WidthOrZero, validated
from captioning.models.parts.numerics import Part, at_least_single, dropout
from captioning.models.parts.scores import Score, per_head


class AttentionStep(NamedTuple):
    """Result of attention for one word of each caption."""

    context: Tensor  # z_t, `[B, N, Z]`
    alpha: Tensor  # `[B, N, L]`
    # With `sampled`, `[B, N]` each: log alpha_t(s_t), and the entropy of alpha_t in nats.
    policy: tuple[Tensor, ...] = ()
    taken: Tensor | None = None  # s_t `[B, N, L]`, one-hot, where `mode` takes a location
    sentinel: Tensor | None = None  # beta_t `[B, N]`, the sentinel's share of the context


class Attention(Part, ABC):
    """Base class of attention.

    Built by keyword with d_context (D), d_query (n), grid, and score, a builder of `Score` or None.
    """

    d_value: int = 0  # Z; 0 if it lacks a score, which is a model without attention
    sentinel = False  # True if the query is [h_t; s_t] of a cell with a sentinel
    stochastic = False  # True if `forward` uses `sampled` and `uniform`
    needs_previous_weights = False  # True if `forward` uses the weights of the previous step

    @abstractmethod
    def read(self, context: ContextSet) -> Any:
        """Precompute the inputs from the images, once for all captions."""

    @abstractmethod
    def forward(
        self,
        image: Any,
        query: Tensor,
        past: Tensor | None = None,
        sampled: Tensor | None = None,
        uniform: Tensor | None = None,
    ) -> AttentionStep:
        """One step from the cell's `query` `[B, N, n]`.

        `image` is of `read`, `past` `[B, N, L]` the last weights.

        `sampled` `[B]` and `uniform` `[B, N]` are as in `Captioner`.
        """


class Annotations(NamedTuple):
    """Inputs of every step of attention from the images."""

    values: Tensor  # the vectors to average, `[B, L, Z]`, or of several heads `[B, H, L, Z / H]`
    keys: Any  # of the score
    # bool, True = may be attended: `[B, 1, L]`, of `XLinear` `[B, 1, 1, L]`
    mask: Tensor | None
    grid: Grid


class SoftmaxAttention(Attention):
    """z_t = beta_t sum_i alpha_ti c_i with alpha_t = softmax(e_t) (Xu et al. 2015, Eq. 4, 5, 13).

    With several heads of the score, each averages its part of the values by its own weights; their
    mean is alpha_t.

    Args:
        gate: beta_t = sigmoid(f_beta(h)), a scalar (section 4.2.1 of the paper), or a number for
            each of the Z features; otherwise 1.
        mode: the context of a step unless the caller samples: its expectation under alpha (Eq. 13),
            a location drawn from alpha (Eq. 8), or the most probable location; several heads have
            no common location, only "expected".
        temperature: divisor of e; below 1 it sharpens, by beta = 1 / temperature (Chorowski et al.
            2015, section 2.3).
        smoothing: sigmoid(e) in place of exp(e) (same section).
        energy_bias: with smoothing, a learned number added to e, which would cancel in the softmax
            (the authors' code, attention-lvcsr).
        dropout: probability to drop a weight.
        window: largest distance from the median of the last weights (same paper), along each axis
            of the grid (D); the first step attends everywhere (D). None: no window.
    """

    stochastic = True

    @validated
    def __init__(
        self,
        d_context: int,
        d_query: int,
        grid: Grid,
        score: Callable[..., Score] | None,
        *,
        gate: bool | Literal["features"] = False,
        mode: Literal["expected", "sample", "argmax"] = "expected",
        temperature: Positive = 1.0,
        smoothing: bool = False,
        energy_bias: bool = False,
        dropout: Share = 0.0,
        window: WidthOrZero | None = None,
    ):
        super().__init__()
        if score is None:
            return
        self.score = score(d_context=d_context, d_query=d_query, grid=grid)
        self.d_value, self.heads, self.dropout = self.score.d_value, self.score.heads, dropout
        self.stochastic = self.heads == 1  # no common location to sample otherwise
        if mode != "expected" and not self.stochastic:
            raise ValueError(
                f"mode is {mode} and heads is {self.heads}; several heads have no common location"
            )
        width = self.d_value if gate == "features" else 1
        self.gate = nn.Linear(d_query, width) if gate else None  # f_beta
        self.mode, self.temperature = mode, temperature
        self.smoothing, self.window = smoothing, window
        self.energy_bias = nn.Parameter(torch.zeros(())) if smoothing and energy_bias else None
        self.needs_previous_weights = self.score.needs_previous_weights or window is not None

    def read(self, context: ContextSet) -> Annotations:
        values = per_head(self.score.values(context.vectors), self.heads)
        mask = None if context.mask is None else context.mask[:, None]
        return Annotations(values, self.score.keys(context), mask, context.grid)

    def forward(
        self,
        image: Annotations,
        query: Tensor,
        past: Tensor | None = None,
        sampled: Tensor | None = None,
        uniform: Tensor | None = None,
    ) -> AttentionStep:
        scores = self.score(image.keys, query, past)
        if self.energy_bias is not None:
            scores = scores + self.energy_bias
        scores = scores / self.temperature
        if self.smoothing:
            scores = nn.functional.logsigmoid(scores)
        allowed = image.mask
        if self.window is not None and past is not None:
            allowed = _near(past, image.grid, self.window, image.mask)
        if allowed is not None:
            hidden = ~allowed if self.heads == 1 else ~allowed[:, :, None]
            scores = scores.masked_fill(hidden, float("-inf"))
        log_alpha = scores.log_softmax(-1)
        alpha = weights = log_alpha.exp()  # Eq. 5
        policy: tuple[Tensor, ...] = ()
        taken = None
        if sampled is not None:
            location = self.draw(alpha, uniform)[..., None]
            weights = torch.where(sampled[:, None, None], _one_hot(location, alpha), alpha)
            log_prob = log_alpha.gather(-1, location).squeeze(-1)
            if allowed is not None:
                log_alpha = log_alpha.masked_fill(~allowed, 0.0)  # 0 log 0 = 0
            policy = log_prob, -(alpha * log_alpha).sum(-1)
        elif self.mode != "expected":
            location = self.draw(alpha) if self.mode == "sample" else alpha.argmax(-1)
            weights = taken = _one_hot(location[..., None], alpha)
        weights = dropout(weights, self.dropout, self.training).to(image.values.dtype)
        if self.heads == 1:
            z = weights @ image.values  # Eq. 13, or Eq. 9 where the weights are one-hot
        else:
            z = (weights.transpose(1, 2) @ image.values).transpose(1, 2).flatten(2)
            alpha = alpha.mean(2)
        if self.gate:
            z = self.gate(query).sigmoid() * z
        return AttentionStep(z, alpha, policy, taken)

    def draw(self, alpha: Tensor, uniform: Tensor | None = None) -> Tensor:
        """Draw s_t ~ Multinoulli(alpha_t) (Eq. 8), `[B, N]`.

        It is where the sum of alpha first exceeds `uniform` `[B, N]`.

        Sums are integers in units of 2^-32, so that they are exact and never decrease: on any
        device, no location without weight is drawn, and no draw exceeds the last sum.
        """
        if uniform is None:
            uniform = torch.rand(alpha.shape[:-1], device=alpha.device)
        sums = (at_least_single(alpha.detach()) * 2**32).long().cumsum(-1)
        # `uniform` has 24 bits, the sum 33: their product fits, and its floor is below the sum
        height = ((uniform * 2**24).long() * sums[..., -1]) >> 24
        return torch.searchsorted(sums, height[..., None], right=True).squeeze(-1)


def _one_hot(location: Tensor, alpha: Tensor) -> Tensor:
    """s_t `[B, N, 1]` as one-hot vectors `[B, N, L]`."""
    return torch.zeros_like(alpha).scatter(-1, location, 1.0)


def _near(past: Tensor, grid: Grid, width: int, mask: Tensor | None) -> Tensor:
    """The unmasked locations near the median of `past`, `[B, N, L]` bool.

    Within `width` rows and columns.

    If there are none, all unmasked locations.
    """
    weights = past.detach().unflatten(-1, (-1, *grid))  # of each image
    near = torch.ones_like(weights, dtype=torch.bool)
    for along, across in ((-2, -1), (-1, -2)):
        half = weights.sum(across).cumsum(-1)
        median = (half < half[..., -1:] / 2).sum(-1, keepdim=True)
        positions = torch.arange(weights.shape[along], device=past.device)
        near &= ((positions - median).abs() <= width).unsqueeze(across)
    near = near.flatten(-3)
    everything = torch.ones_like(near) if mask is None else mask
    near &= everything
    return near | (everything & ~near.any(-1, keepdim=True))
