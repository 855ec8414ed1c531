"""Gated recurrent cells, each based on an affine map of [word; image; context; state].

B images, N captions per image, C steps, m features of a word, X features of the image in every
step, Z features of a step's context z_t, n features of the state, K rows of the map. A cell's
memory is a tuple of tensors `[B, N, n]`, the first of which is its output h_t.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from captioning.config.types import Share, validated
from captioning.models.parts.numerics import Part, at_least_single, dropout, plus
from captioning.models.parts.steps import StepLinear

Memory = tuple[Tensor, ...]
Reset = Literal["before", "after"]
Query = Literal["after", "before"]


class Cell(Part, ABC):
    """Base class of cells.

    Built by keyword with d_word (m), d_image (X or 0), d_context (Z or 0) and d_hidden (n).

    Example:
        h_t = tanh of the affine map:

        >>> import torch
        >>> class Elman(SingleStageCell):
        ...     memories = 1
        ...
        ...     def __init__(self, d_word, d_image, d_context, d_hidden):
        ...         super().__init__(d_hidden, d_word, d_image, d_context, d_hidden, d_hidden)
        ...
        ...     def forward(self, x, context, memory):
        ...         x = plus(x + self.hidden(memory[0]), self.context, context)
        ...         return (x.tanh(),)
        >>> cell = Elman(d_word=5, d_image=0, d_context=3, d_hidden=4)
        >>> x = cell.words(torch.zeros(2, 1, 7, 5))  # of C = 7 steps
        >>> (hidden,) = cell(x[:, :, 0], torch.zeros(2, 1, 3), (torch.zeros(2, 1, 4),))
        >>> hidden.shape
        torch.Size([2, 1, 4])
    """

    memories: int  # number of tensors in the memory
    sentinel = False  # True if the query is [h_t; s_t], the state and a sentinel, 2 n features

    @abstractmethod
    def words(self, words: Tensor) -> Tensor:
        """`[B, N, C, m]` to `[B, N, C, K]`: project the words of all steps at once."""

    @abstractmethod
    def image(self, image: Tensor) -> Tensor:
        """Project the image, which is added to the words of every step.

        `[B, N, X]` to `[B, N, K]`.
        """

    def compute_query(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """First half of a step: return the query of attention, and the memory."""
        return memory[0], memory

    @abstractmethod
    def forward(self, x: Tensor, context: Tensor | None, memory: Memory) -> Memory:
        """Second half of a step, from `x` `[B, N, K]` and `context` z_t, if any.

        `x` is `words` plus `image`.
        """


class SingleStageCell(Cell):
    """The affine map of a single cell, split by inputs, with one bias."""

    def __init__(
        self, rows: int, d_word: int, d_image: int, d_context: int, d_hidden: int, recurrent: int
    ):
        super().__init__()
        self.word = nn.Linear(d_word, rows)
        self.hidden = StepLinear(d_hidden, recurrent)
        self.context = StepLinear(d_context, rows) if d_context else None
        self.constant = nn.Linear(d_image, rows, bias=False) if d_image else None

    def initialise(self) -> None:
        # orthogonal recurrences (Saxe et al. 2014) (D)
        for block in self.hidden.weight.split(self.hidden.in_features):
            nn.init.orthogonal_(block)

    def words(self, words: Tensor) -> Tensor:
        return self.word(words)

    def image(self, image: Tensor) -> Tensor:
        assert self.constant is not None
        return self.constant(image)


class LSTM(SingleStageCell):
    """LSTM (Xu et al. 2015, Eq. 1-3).

    c_t = f * c_{t-1} + i * g; h_t = o * tanh(c_t); i, f, o = sigmoid, g = tanh of the map, or with
    `maxout` the larger of two of its rows (Rennie et al. 2017, section 3).

    The memory is h, c; c is a sum over all steps and is kept in at least single precision.
    """

    memories = 2

    @validated
    def __init__(
        self, d_word: int, d_image: int, d_context: int, d_hidden: int, maxout: bool = False
    ):
        self.blocks = 5 if maxout else 4
        rows = self.blocks * d_hidden
        super().__init__(rows, d_word, d_image, d_context, d_hidden, rows)

    def initialise(self) -> None:
        super().initialise()
        # a forget gate that starts open (Gers et al. 2000) (D)
        nn.init.ones_(self.word.bias.split(self.hidden.in_features)[1])

    def forward(self, x: Tensor, context: Tensor | None, memory: Memory) -> Memory:
        gates = plus(x + self.hidden(memory[0]), self.context, context)
        return self.update(gates.chunk(self.blocks, dim=-1), memory)

    def update(self, gates: Sequence[Tensor], memory: Memory) -> Memory:
        """The new memory, from the map's rows of i, f, o and g, one or two, `[B, N, n]` each."""
        i, f, o, *rows = gates
        hidden, cell = memory
        g = torch.maximum(*rows) if len(rows) == 2 else rows[0].tanh()
        cell = f.sigmoid() * at_least_single(cell) + i.sigmoid() * g
        return (o.sigmoid() * cell.tanh()).to(hidden.dtype), cell


class GRU(SingleStageCell):
    """GRU (Cho et al. 2014).

    h_t = u * h~ + (1 - u) * h_{t-1}; h~ = tanh(W x + U (r * h_{t-1})); u, r = sigmoid of the map.

    `reset` applies `before` the matrix, U (r * h) (Cho et al.), or `after` it, r * (U h), a
    different function, as in Nematus and torch's GRUCell (whose u is 1 - u here).
    """

    memories = 1
    inside = False  # with `after` also of the candidate's bias, r * (U h + b)

    @validated
    def __init__(
        self, d_word: int, d_image: int, d_context: int, d_hidden: int, reset: Reset = "before"
    ):
        super().__init__(3 * d_hidden, d_word, d_image, d_context, d_hidden, 2 * d_hidden)
        self.reset = reset
        self.candidate = nn.Linear(d_hidden, d_hidden, bias=False)  # U

    def initialise(self) -> None:
        super().initialise()
        nn.init.orthogonal_(self.candidate.weight)

    def forward(self, x: Tensor, context: Tensor | None, memory: Memory) -> Memory:
        (hidden,) = memory
        gates, candidate = plus(x, self.context, context).split(
            (2 * hidden.shape[-1], hidden.shape[-1]), dim=-1
        )
        u, r = (gates + self.hidden(hidden)).sigmoid().chunk(2, dim=-1)
        if self.reset == "after":
            recurrent = r * self.candidate(hidden)
            if self.inside:
                # The share r of the bias belongs there, and `candidate` has all of it.
                recurrent = recurrent + (r - 1) * self.word.bias.chunk(3)[2]
        else:
            recurrent = self.candidate((r * hidden).to(hidden.dtype))
        return ((u * (candidate + recurrent).tanh() + (1 - u) * hidden).to(hidden.dtype),)


class TwoStageCell(Cell):
    """Two cells: the first reads word and image, the second the context vector.

    The query of attention is the state `after` the word is read, or the last output, `before` it.
    """

    def __init__(self, first: SingleStageCell, query: Query):
        super().__init__()
        self.first, self.query = first, query

    def words(self, words: Tensor) -> Tensor:
        return self.first.words(words)

    def image(self, image: Tensor) -> Tensor:
        return self.first.image(image)


class UpDown(TwoStageCell):
    """Two LSTMs (Anderson et al. 2018, section 3.2).

    h1_t = LSTM_1([h2_{t-1}; image; E y_{t-1}], h1_{t-1}); attention by h1_t; h2_t = LSTM_2([z_t;
    h1_t], h2_{t-1}). The memory is h2, c2, h1, c1.
    """

    memories = 4

    @validated
    def __init__(
        self, d_word: int, d_image: int, d_context: int, d_hidden: int, query: Query = "after"
    ):
        super().__init__(LSTM(d_word, d_image, d_hidden, d_hidden), query)
        self.second = LSTM(d_hidden, 0, d_context, d_hidden)

    def compute_query(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        before = memory[0]
        first = self.first(x, before, memory[2:])
        return first[0] if self.query == "after" else before, (*memory[:2], *first)

    def forward(self, x: Tensor, context: Tensor | None, memory: Memory) -> Memory:
        return *self.second(self.second.words(memory[2]), context, memory[:2]), *memory[2:]


class AoACell(TwoStageCell):
    """Attention on attention: `UpDown` with a gate as its second cell.

    Huang et al. 2019, "AoANet", section 3.2.2.

    h_t, m_t = LSTM([u_{t-1} + image; E y_{t-1}], h_{t-1}, m_{t-1}); attention by h_t; u_t = i *
    sigmoid(g) with [i; g] = W [z_t; h_t] + b. The memory is u, h, m. Dropout is on u_{t-1}. `tied`:
    image and u share their matrix, as in the paper, so that X = n; otherwise each has its own.
    """

    memories = 3

    @validated
    def __init__(
        self,
        d_word: int,
        d_image: int,
        d_context: int,
        d_hidden: int,
        dropout: Share = 0.0,
        tied: bool = True,
    ):
        if tied and d_image not in (0, d_hidden):
            raise ValueError(
                f"the image has {d_image} features, the state {d_hidden}: make them equal, or "
                "tied=false"
            )
        super().__init__(LSTM(d_word, 0 if tied else d_image, d_hidden, d_hidden), "after")
        self.state = nn.Linear(d_hidden, 2 * d_hidden)
        self.context = nn.Linear(d_context, 2 * d_hidden, bias=False) if d_context else None
        self.dropout, self.tied = dropout, tied

    def image(self, image: Tensor) -> Tensor:
        tied = self.tied and self.first.context
        return tied(image) if tied else self.first.image(image)

    def compute_query(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        first = self.first(x, dropout(memory[0], self.dropout, self.training), memory[1:])
        return first[0], (memory[0], *first)

    def forward(self, x: Tensor, context: Tensor | None, memory: Memory) -> Memory:
        total = plus(self.state(memory[1]), self.context, context)
        return nn.functional.glu(total), *memory[1:]


class ConditionalGRU(TwoStageCell):
    """One state through two GRUs, whose `reset` is `after`.

    Sennrich et al. 2017, "Nematus", section 2.

    s'_t = GRU_1(E y_{t-1}, s_{t-1}); attention by s'_t; s_t = GRU_2(z_t, s'_t). In their code, and
    in dl4mt's, the bias of GRU_2's candidate is that of s'_t: r * (U s'_t + b).
    """

    memories = 1

    @validated
    def __init__(
        self,
        d_word: int,
        d_image: int,
        d_context: int,
        d_hidden: int,
        query: Query = "after",
        reset: Reset = "before",
    ):
        if not d_context:
            raise ValueError(
                "the conditional GRU needs attention between its cells; the model has none: set a "
                "score"
            )
        super().__init__(GRU(d_word, d_image, 0, d_hidden, reset), query)
        self.second = GRU(d_context, 0, 0, d_hidden, reset)
        self.second.inside = reset == "after"

    def compute_query(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        first = self.first(x, None, memory)
        return first[0] if self.query == "after" else memory[0], first

    def forward(self, x: Tensor, context: Tensor | None, memory: Memory) -> Memory:
        # Before the first word there is no context, and the second cell has no input.
        return memory if context is None else self.second(self.second.words(context), None, memory)
