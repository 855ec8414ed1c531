"""How a recurrent decoder is shown an image as a whole, without or beside attention.

B images, D features of a context vector, m of a word's embedding, n of the state, X of what is shown.
"""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from captioning.backbones.context import ContextSet
from captioning.config.types import validated


class Inject(nn.Module, ABC):
    """Built by keyword with d_context (D), d_word (m) and d_hidden (n).

    Attributes:
        d_image: X.
        once: it is read before the first word, as a word (then X = m), and never again; otherwise at every step.
    """

    d_image: int
    once: bool = False

    @abstractmethod
    def forward(self, context: ContextSet, hidden: Tensor) -> Tensor:
        """`[B, X]`; `hidden` is h_0 `[B, n]`, before dropout."""


class Mean(Inject):
    """x = W_x a_mean + b (D), without any spatial information.

    Args:
        once: before BOS, as Show and Tell (Vinyals et al. 2015, Eq. 10), or at every step (Hui 2017).
        project: without it x = a_mean (Anderson et al. 2018, section 3.2.1).
    """

    @validated
    def __init__(self, d_context: int, d_word: int, d_hidden: int, once: bool = False, project: bool = True) -> None:
        super().__init__()
        if once and not project and d_context != d_word:
            raise ValueError(f"an image of {d_context} features cannot be read as a word of {d_word}; set project=true")
        self.once, self.d_image = once, d_word if project else d_context
        self.project = nn.Linear(d_context, d_word) if project else nn.Identity()

    def forward(self, context: ContextSet, hidden: Tensor) -> Tensor:
        return self.project(context.mean())


class State(Inject):
    """W_c c with c = h_0, the bottleneck, at every step (the lecture's "c is often h_0"; Cho et al. 2014)."""

    @validated
    def __init__(self, d_context: int, d_word: int, d_hidden: int) -> None:
        super().__init__()
        self.d_image = d_word
        self.project = nn.Linear(d_hidden, d_word, bias=False)

    def forward(self, context: ContextSet, hidden: Tensor) -> Tensor:
        return self.project(hidden)
