"""What a project's checkpoint is in the terms of this one, and the rows of its words.

V words here, of which the first four are the special tokens of `captioning.tokens`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from captioning.errors import CaptioningError, quoted
from captioning.tokens import NAMES

NEVER = -1e4
"""Logit of a token that the source does not have: its probability is 0 in single precision."""


@dataclass(frozen=True)
class Converted:
    """A captioner of another project.

    Attributes:
        settings: of `captioning run`, such as `model.d_embed=512`, that build the same networks.
        words: in the order of their ids, from the first after the special tokens; or the JSON text
            of a tokenizer.
        state: all weights by the names that the networks here have, `model.` or `backbone.` first.
    """

    settings: list[str]
    words: list[str] | str
    state: dict[str, Tensor]


@dataclass(frozen=True)
class Rows:
    """The rows of a source's matrices that belong to our V ids; None where it has no such token."""

    numbers: Sequence[int | None]

    @classmethod
    def of(cls, special: Sequence[int | None], ids: Mapping[str, int]) -> "tuple[Rows, list[str]]":
        """Those of words with their `ids` in the source, and the words in our order.

        `special` are its ids of PAD, BOS, EOS and UNK, which words have none of.
        """
        if not all(type(number) is int for number in ids.values()):
            raise ValueError("ids are no numbers")
        if len({*ids.values()}) < len(ids):
            raise ValueError("words have the same id")
        "".join(ids).encode()  # or a word is no text, which no file could have
        words = sorted((word for word in ids if ids[word] not in special), key=lambda w: ids[w])
        if taken := sorted({*words} & {*NAMES}):
            raise CaptioningError(f"the vocabulary has the words {quoted(taken)}, which are ours")
        return cls([*special, *(ids[word] for word in words)]), words

    def embedding(self, weight: Tensor) -> Tensor:
        """`[V, m]`, zeros where the source has no row."""
        return self._filled(weight, 0.0)

    def output(self, weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`[V, n]` and `[V]` of an output layer, `NEVER` where the source has no row."""
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        return self._filled(weight, 0.0), self._filled(bias, NEVER)

    def _filled(self, rows: Tensor, empty: float) -> Tensor:
        filled = rows.new_full((len(self.numbers), *rows.shape[1:]), empty)
        own = [(row, number) for row, number in enumerate(self.numbers) if number is not None]
        if not all(0 <= number < len(rows) for _, number in own):
            raise CaptioningError(
                f"the vocabulary has ids beyond the {len(rows)} rows of the weights"
            )
        ours, theirs = torch.tensor(own).unbind(1)
        filled[ours] = rows[theirs]
        return filled


def table(text: str) -> dict[str, str]:
    """Parts of names, a line each: theirs and ours."""
    return dict(line.split() for line in text.strip().splitlines())


def renamed(
    theirs: Mapping[str, Tensor], parts: Mapping[str, str], without: str
) -> dict[str, Tensor]:
    """Tensors by the names here, in which `parts` of theirs are replaced.

    The rows of those that get the same name are joined in their order. Names that match the pattern
    `without` are left out; unknown ones stay, and do not fit.
    """
    found: dict[str, list[Tensor]] = {}
    for name in theirs:
        ours = name
        for part in parts:
            ours = ours.replace(part, parts[part])
        if not re.search(without, name):
            found.setdefault(ours, []).append(theirs[name])
    return {
        ours: torch.cat(tensors) if len(tensors) > 1 else tensors[0]
        for ours, tensors in found.items()
    }


def lstm_rows(rows: Tensor) -> Tensor:
    """Rows of PyTorch's LSTM, of i, f, g and o, in the order of ours: i, f, o, g."""
    i, f, g, o = rows.chunk(4)
    return torch.cat((i, f, o, g))
