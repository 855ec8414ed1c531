"""What decoding gives for one image."""

from dataclasses import dataclass

from torch import Tensor

from captioning.tokens import BOS, EOS, PAD, UNK

FORBIDDEN = (PAD, BOS, UNK)
"""Tokens that no caption may hold."""


@dataclass(frozen=True, slots=True)
class Caption:
    """A generated caption.

    Attributes:
        tokens: the T generated ids without BOS; the last is EOS unless the caption was cut at the maximum length.
        score: what the search ranked by: the log-probability of `tokens`, length-normalised where the search is.
        attention: `[T, L]` on the CPU, the map of the step that predicted each token; None for a model without
            attention.
    """

    tokens: list[int]
    score: float
    attention: Tensor | None

    @property
    def finished(self) -> bool:
        """Whether the caption ended by itself."""
        return bool(self.tokens) and self.tokens[-1] == EOS
