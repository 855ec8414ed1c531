"""Output heads: from the state of a step to the logits of its word.

m features of a word's embedding E y, n of the state h, Z of the context z (0: none), V words.
"""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from captioning.models.bounds import Width


class Head(nn.Module, ABC):
    """It is built by keyword with d_word, d_hidden, d_context (0: none) and vocab_size; dropout is between its halves."""

    @abstractmethod
    def features(self, words: Tensor, hidden: Tensor, context: Tensor | None) -> Tensor:
        """What the words are chosen by, `[..., E]`, from `[..., m]`, `[..., n]` and `[..., Z]`."""

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """Logits `[..., V]`."""


class Linear(Head):
    """W h + b."""

    def __init__(self, d_word: int, d_hidden: int, d_context: int, vocab_size: int) -> None:
        super().__init__()
        self.output = nn.Linear(d_hidden, vocab_size)

    def features(self, words: Tensor, hidden: Tensor, context: Tensor | None) -> Tensor:
        """The state itself."""
        return hidden

    def forward(self, features: Tensor) -> Tensor:
        """See `Head.forward`."""
        return self.output(features)


class Xu(Head):
    """L_o (E y + L_h h + L_z z) (Xu et al. 2015, Eq. 7).

    Args:
        d_word: m.
        d_hidden: n.
        d_context: Z.
        vocab_size: V.
        tanh: around the argument of L_o, which the authors' released code has and Eq. 7 has not.
    """

    def __init__(self, d_word: int, d_hidden: int, d_context: int, vocab_size: int, tanh: bool = False) -> None:
        super().__init__()
        self.tanh = tanh
        self.hidden = nn.Linear(d_hidden, d_word, bias=False)  # L_h
        self.context = nn.Linear(d_context, d_word, bias=False) if d_context else None  # L_z
        self.output = nn.Linear(d_word, vocab_size, bias=False)  # L_o

    def features(self, words: Tensor, hidden: Tensor, context: Tensor | None) -> Tensor:
        """The argument of L_o."""
        features = words + self.hidden(hidden)
        if self.context is not None:
            features = features + self.context(context)
        return features.tanh() if self.tanh else features

    def forward(self, features: Tensor) -> Tensor:
        """See `Head.forward`."""
        return self.output(features)


class Deep(Head):
    """W tanh(U h + V E y + C z + b) + b' (Sennrich et al. 2017, "Nematus", section 2).

    Args:
        d_word: m.
        d_hidden: n.
        d_context: Z.
        vocab_size: V.
        width: of the tanh; None is m (D).
    """

    def __init__(
        self, d_word: int, d_hidden: int, d_context: int, vocab_size: int, width: Width | None = None
    ) -> None:
        super().__init__()
        width = d_word if width is None else width
        self.hidden = nn.Linear(d_hidden, width, bias=False)  # U
        self.word = nn.Linear(d_word, width)  # V, b
        self.context = nn.Linear(d_context, width, bias=False) if d_context else None  # C
        self.output = nn.Linear(self.pooled(width), vocab_size)  # W, b'

    def pooled(self, width: int) -> int:
        """The features that are left of `width`."""
        return width

    def pool(self, features: Tensor) -> Tensor:
        """What becomes of the sum."""
        return features.tanh()

    def features(self, words: Tensor, hidden: Tensor, context: Tensor | None) -> Tensor:
        """The argument of W."""
        features = self.word(words) + self.hidden(hidden)
        if self.context is not None:
            features = features + self.context(context)
        return self.pool(features)

    def forward(self, features: Tensor) -> Tensor:
        """See `Head.forward`."""
        return self.output(features)


class Maxout(Deep):
    """W max(pairs of U h + V E y + C z + b) + b' (Goodfellow et al. 2013; Bahdanau et al. 2015, appendix A.2.2).

    Bahdanau has h_{t-1} here, this h_t, as Xu et al. (D). The width is that of the sum, 2 l, and None is 2 m (D).
    """

    def __init__(
        self, d_word: int, d_hidden: int, d_context: int, vocab_size: int, width: Width | None = None
    ) -> None:
        width = 2 * d_word if width is None else width
        super().__init__(d_word, d_hidden, d_context, vocab_size, width)

    def pooled(self, width: int) -> int:
        """Half."""
        if width % 2:
            raise ValueError(f"the width of the maxout is {width}; it must be even, since the larger of two is taken")
        return width // 2

    def pool(self, features: Tensor) -> Tensor:
        """The larger of each pair of neighbours."""
        return features.unflatten(-1, (-1, 2)).amax(dim=-1)
