"""How a recurrent decoder is shown an image as a whole, without or beside attention.

B images, D features of a context vector, m of a word's embedding, n of the state, X of what every step reads.
"""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from captioning.backbones.context import ContextSet


class Inject(nn.Module, ABC):
    """It is built by keyword with d_context, d_word and d_hidden.

    Attributes:
        d_image: X.
        once: it is read as a word before the first one (then X = m) and never again, not at every step.
    """

    d_image: int
    once = False

    @abstractmethod
    def forward(self, context: ContextSet, hidden: Tensor) -> Tensor:
        """`[B, X]`; `hidden` is h_0 `[B, n]`, before dropout."""


class Mean(Inject):
    """The mean of the context vectors, at every step (Anderson et al. 2018, section 3.2.1)."""

    def __init__(self, d_context: int, d_word: int, d_hidden: int) -> None:
        super().__init__()
        self.d_image = d_context

    def forward(self, context: ContextSet, hidden: Tensor) -> Tensor:
        """See `Inject.forward`."""
        return context.mean()


class Every(Inject):
    """x = W_x a_mean + b (D), at every step (Hui 2017)."""

    def __init__(self, d_context: int, d_word: int, d_hidden: int) -> None:
        super().__init__()
        self.d_image = d_word
        self.project = nn.Linear(d_context, d_word)

    def forward(self, context: ContextSet, hidden: Tensor) -> Tensor:
        """See `Inject.forward`."""
        return self.project(context.mean())


class First(Every):
    """x = W_x a_mean + b (D) before BOS, as Show and Tell (Vinyals et al. 2015, Eq. 10)."""

    once = True


class State(Inject):
    """W_c c with c = h_0, the bottleneck, at every step (the lecture's "c is often h_0"; Cho et al. 2014)."""

    def __init__(self, d_context: int, d_word: int, d_hidden: int) -> None:
        super().__init__()
        self.d_image = d_word
        self.project = nn.Linear(d_hidden, d_word, bias=False)

    def forward(self, context: ContextSet, hidden: Tensor) -> Tensor:
        """See `Inject.forward`."""
        return self.project(hidden)
