"""Output heads: from the state of a step to the logits of its word.

m features of a word's embedding E y, n features of the state h, Z features of the context z (0:
none), V words.
"""

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from captioning.config.types import Width, validated
from captioning.models.parts.numerics import plus

Bias = Literal["none", "zero", "frequencies"]
"""Initial bias of the last layer; `frequencies`: word frequencies (NeuralTalk, the code of
Karpathy, Fei-Fei 2015).
"""


class Head(nn.Module, ABC):
    """Base class, built by keyword with d_word, d_hidden, d_context and vocab_size (m, n, Z, V)."""

    output: nn.Linear
    bias: Bias = "zero"

    @abstractmethod
    def features(self, words: Tensor, hidden: Tensor, context: Tensor | None) -> Tensor:
        """Input of the output layer, before dropout: `[..., E]`.

        Word, hidden state and context are `[..., m]`, `[..., n]`, `[..., Z]`.
        """

    @torch.no_grad()
    def init_bias_from_counts(self, counts: Tensor) -> None:
        """Set the bias to log-frequencies log((n_v + 1) / sum_v (n_v + 1)) of `counts` n `[V]`."""
        self.output.bias.copy_(((counts + 1) / (counts + 1).sum()).log())

    def forward(self, features: Tensor) -> Tensor:
        """Logits `[..., V]`."""
        return self.output(features)


class LinearHead(Head):
    """W h + b."""

    @validated
    def __init__(
        self, d_word: int, d_hidden: int, d_context: int, vocab_size: int, bias: Bias = "zero"
    ):
        super().__init__()
        self.bias = bias
        self.output = nn.Linear(d_hidden, vocab_size, bias=bias != "none")

    def features(self, words: Tensor, hidden: Tensor, context: Tensor | None) -> Tensor:
        return hidden


class Xu(Head):
    """Deep output: L_o (E y + L_h h + L_z z) (Xu et al. 2015, Eq. 7), with `tanh` of the sum as in
    the authors' code.
    """

    @validated
    def __init__(
        self,
        d_word: int,
        d_hidden: int,
        d_context: int,
        vocab_size: int,
        tanh: bool = False,
        bias: Bias = "none",
    ):
        super().__init__()
        self.tanh, self.bias = tanh, bias
        self.hidden = nn.Linear(d_hidden, d_word, bias=False)  # L_h
        self.context = nn.Linear(d_context, d_word, bias=False) if d_context else None  # L_z
        self.output = nn.Linear(d_word, vocab_size, bias=bias != "none")  # L_o

    def features(self, words: Tensor, hidden: Tensor, context: Tensor | None) -> Tensor:
        features = plus(words + self.hidden(hidden), self.context, context)
        return features.tanh() if self.tanh else features


class Deep(Head):
    """W f(U h + V E y + C z + b) + b'.

    `pool` is f: tanh (Sennrich et al. 2017, "Nematus", section 2), or maxout, the larger of each
    pair of neighbours (Goodfellow et al. 2013; Bahdanau et al. 2015, appendix A.2.2, with h_{t-1}
    in place of h_t (D)). `width` is the number of features of the sum; None is m for tanh, and 2 m
    for maxout (D).
    """

    @validated
    def __init__(
        self,
        d_word: int,
        d_hidden: int,
        d_context: int,
        vocab_size: int,
        pool: Literal["tanh", "maxout"] = "tanh",
        width: Width | None = None,
        bias: Bias = "zero",
    ):
        super().__init__()
        self.bias, self.pairs = bias, pool == "maxout"
        width = width or (2 * d_word if self.pairs else d_word)
        if self.pairs and width % 2:
            raise ValueError(
                f"the width of the maxout is {width}; it must be even, since features are pooled "
                "in pairs"
            )
        self.hidden = nn.Linear(d_hidden, width, bias=False)  # U
        self.word = nn.Linear(d_word, width)  # V, b
        self.context = nn.Linear(d_context, width, bias=False) if d_context else None  # C
        width = width // 2 if self.pairs else width
        self.output = nn.Linear(width, vocab_size, bias=bias != "none")  # W, b'

    def features(self, words: Tensor, hidden: Tensor, context: Tensor | None) -> Tensor:
        features = plus(self.word(words) + self.hidden(hidden), self.context, context)
        return features.unflatten(-1, (-1, 2)).amax(-1) if self.pairs else features.tanh()
