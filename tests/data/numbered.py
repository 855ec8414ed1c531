"""Made-up photographs for a data set."""

from pathlib import Path

import torch

from captioning.data.example import Example, Reference


class Numbered:
    """Photographs of one vector of two features: their position, and the number of the view."""

    def __init__(self, number=0):
        self.number = number

    def rows(self, indices):
        return torch.tensor([[[float(i), float(self.number)]] for i in indices])


def example(number, *captions):
    return Example(
        number,
        Path(f"{number}.png"),
        tuple(Reference(text, tuple(text.split())) for text in captions),
    )
