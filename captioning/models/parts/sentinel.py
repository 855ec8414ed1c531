"""The visual sentinel of adaptive attention (Lu et al., "Knowing When to Look", CVPR 2017).

B images, N captions per image, L context vectors of D features, n features of the state, K rows of
a cell's map. Equations are those of the paper's sections 2.2 and 2.3.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from captioning.backbones.context import ContextSet, Grid
from captioning.config.types import validated
from captioning.models.parts.additive import additive_scores
from captioning.models.parts.attention import Annotations, Attention, AttentionStep
from captioning.models.parts.cells import LSTM, Memory, SingleStageCell
from captioning.models.parts.heads import Bias, LinearHead
from captioning.models.parts.scores import AdditiveScore
from captioning.models.parts.steps import StepLinear


class SentinelLSTM(LSTM):
    """An LSTM that reads word and image, and the sentinel s_t = g_t * tanh(m_t) of its memory m_t.

    g_t = sigmoid(W_x x_t + W_h h_{t-1}) (Eq. 9 and 10) with a bias (D). The query of attention is
    [h_t; s_t], 2 n features; the context c^_t does not return to the cell. The memory is h, m.
    """

    sentinel = True

    @validated
    def __init__(self, d_word: int, d_image: int, d_context: int, d_hidden: int):
        SingleStageCell.__init__(self, 5 * d_hidden, d_word, d_image, 0, d_hidden, 5 * d_hidden)

    def compute_query(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        *gates, gate = (x + self.hidden(memory[0])).chunk(5, dim=-1)
        hidden, cell = self.update(gates, memory)
        sentinel = (gate.sigmoid() * cell.tanh()).to(hidden.dtype)
        return torch.cat((hidden, sentinel), dim=-1), (hidden, cell)

    def forward(self, x: Tensor, context: Tensor | None, memory: Memory) -> Memory:
        return memory


class SentinelAttention(Attention):
    """c^_t = beta_t s_t + (1 - beta_t) sum_i alpha_ti v_i with v_i = ReLU(W_a a_i + b) (Eq. 8, 11).

    z_ti = w . tanh(W_v v_i + W_g h_t) and alpha_t = softmax(z_t) (Eq. 6, 7); the sentinel's score
    is w . tanh(W_s s_t + W_g h_t), and beta_t its weight in the softmax over L + 1 scores (Eq. 12).
    """

    sentinel = True

    @validated
    def __init__(
        self, d_context: int, d_query: int, grid: Grid, score: Callable[..., AdditiveScore] | None
    ):
        super().__init__()
        if score is None:
            return
        self.d_value = d_query
        self.project = nn.Linear(d_context, d_query)  # W_a
        self.score = score(d_context=d_query, d_query=d_query, grid=grid)  # W_v, W_g, w
        if type(self.score) is not AdditiveScore or self.score.heads > 1:
            raise ValueError(
                "the sentinel is scored with the image by one head: set model/score=mlp and "
                "model.score.heads=1"
            )
        self.own = StepLinear(d_query, len(self.score.weight))  # W_s

    def read(self, context: ContextSet) -> Annotations:
        """The values v_i, `[B, L, n]`, and the keys W_v v_i + b, as the score keeps them."""
        values = self.project(context.vectors).relu()
        mask = None if context.mask is None else context.mask[:, None]
        keys = self.score.keys(replace(context, vectors=values))
        return Annotations(values, keys, mask, context.grid)

    def forward(self, image: Annotations, query: Tensor, *_: Any, **__: Any) -> AttentionStep:
        hidden, sentinel = query.chunk(2, dim=-1)
        asked = self.score.query(hidden)  # W_g h_t, of the image and of the sentinel
        scores = additive_scores(image.keys, asked, self.score.weight)
        if image.mask is not None:
            scores = scores.masked_fill(~image.mask, float("-inf"))
        own = (self.own(sentinel) + asked).tanh() @ self.score.weight
        alpha, beta = scores.softmax(-1), self.share(own, scores)
        seen = alpha.to(image.values.dtype) @ image.values
        weight = beta[..., None].to(seen.dtype)
        context = weight * sentinel.to(seen.dtype) + (1 - weight) * seen
        return AttentionStep(context, alpha, sentinel=beta)

    def share(self, own: Tensor, scores: Tensor) -> Tensor:
        """beta_t `[B, N]`, the sentinel's share of the softmax over its score and the image's."""
        return (own - scores.logsumexp(-1)).sigmoid()


class SumHead(LinearHead):
    """W_p (c^ + h) + b (Eq. 13), for a context as wide as the state."""

    @validated
    def __init__(
        self, d_word: int, d_hidden: int, d_context: int, vocab_size: int, bias: Bias = "zero"
    ):
        super().__init__(d_word, d_hidden, d_context, vocab_size, bias)
        if d_context != d_hidden:
            raise ValueError(
                f"the state has {d_hidden} features and the context {d_context}: their sum needs "
                "model/attention=sentinel"
            )

    def features(self, words: Tensor, hidden: Tensor, context: Tensor | None) -> Tensor:
        assert context is not None
        return hidden + context
