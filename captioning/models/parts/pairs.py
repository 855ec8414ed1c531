"""Two cells with attention between them, so that it may be asked by a state that has read the word already.

m features of a word, X of what the image adds to every step, Z of a step's context z_t, n of the state.
"""

from typing import Literal

from torch import Tensor

from captioning.config.types import validated
from captioning.models.parts.cells import GRU, LSTM, Cell, Memory, Reset, Unit

Query = Literal["after", "before"]


class Pair(Cell):
    """The first cell reads word and image, the second one what attention has found.

    Args:
        first: before attention.
        second: behind it.
        query: attention is asked by the state `after` the word was read, or by the last output, `before`.
    """

    def __init__(self, first: Unit, second: Unit, query: Query) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.query: Query = query

    def words(self, words: Tensor) -> Tensor:
        return self.first.words(words)

    def image(self, image: Tensor) -> Tensor:
        return self.first.image(image)

    def initialise(self) -> None:
        self.first.initialise()
        self.second.initialise()


class UpDown(Pair):
    """Two LSTMs (Anderson et al. 2018, section 3.2).

    h1_t = LSTM_1([h2_{t-1}; image; E y_{t-1}], h1_{t-1}); attention by h1_t; h2_t = LSTM_2([z_t; h1_t], h2_{t-1}). The
    memory is h2, c2, h1, c1.
    """

    memories = 4

    @validated
    def __init__(self, d_word: int, d_image: int, d_context: int, d_hidden: int, query: Query = "after") -> None:
        first, second = LSTM(d_word, d_image, d_hidden, d_hidden), LSTM(d_hidden, 0, d_context, d_hidden)
        super().__init__(first, second, query)

    def ask(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        before = memory[0]
        first = self.first(x, before, memory[2:])
        return first[0] if self.query == "after" else before, (*memory[:2], *first)

    def forward(self, x: Tensor, context: Tensor | None, memory: Memory) -> Memory:
        return (*self.second(self.second.words(memory[2]), context, memory[:2]), *memory[2:])


class ConditionalGRU(Pair):
    """One state through two GRUs (Sennrich et al. 2017, "Nematus", section 2).

    s'_t = GRU_1(E y_{t-1}, s_{t-1}); attention by s'_t; s_t = GRU_2(z_t, s'_t).

    Args:
        reset: of both, see `GRU`; theirs is `after`.
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
    ) -> None:
        if not d_context:
            raise ValueError("the conditional GRU has attention between its cells, and the model has none: set a score")
        first, second = GRU(d_word, d_image, 0, d_hidden, reset), GRU(d_context, 0, 0, d_hidden, reset)
        super().__init__(first, second, query)

    def ask(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        first = self.first(x, None, memory)
        return first[0] if self.query == "after" else memory[0], first

    def forward(self, x: Tensor, context: Tensor | None, memory: Memory) -> Memory:
        # without a context, before the first word, the second has nothing to read
        return memory if context is None else self.second(self.second.words(context), None, memory)
