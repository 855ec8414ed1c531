"""Made-up photographs for a data set."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from captioning.data.example import Example, Reference


class Numbered:
    """Photographs of one vector of two features: their position, and the number of the view."""

    pixels = False

    def __init__(self, number: int = 0) -> None:
        self.number = number

    def rows(self, indices: Sequence[int]) -> Tensor:
        return torch.tensor([[[float(i), float(self.number)]] for i in indices])


def example(number: int, *captions: str) -> Example:
    return Example(
        number,
        Path(f"{number}.png"),
        tuple(Reference(text, tuple(text.split())) for text in captions),
    )
