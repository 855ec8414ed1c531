"""Back-pointers of a search: captions are read from them at the end, so that no step copies whole captions.

B images, N hypotheses, L context vectors, T tokens.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(slots=True)
class Trace:
    """One entry a step.

    Attributes:
        tokens: `[B, N]`, the token that each hypothesis chose.
        parents: `[B, N]`, the hypothesis of the step before that it went on from.
        attention: `[B, N, L]`, the map of each hypothesis before its choice; none for a model without attention.
    """

    tokens: list[Tensor] = field(default_factory=list)
    parents: list[Tensor] = field(default_factory=list)
    attention: list[Tensor] = field(default_factory=list)

    def add(self, tokens: Tensor, parents: Tensor, attention: Tensor | None) -> None:
        """Records one step."""
        self.tokens.append(tokens)
        self.parents.append(parents)
        if attention is not None:
            self.attention.append(attention)

    def cpu(self) -> "Trace":
        """A copy to read from."""
        return Trace(*([x.cpu() for x in xs] for xs in (self.tokens, self.parents, self.attention)))

    def read(self, b: int, row: int, steps: int, last: int | None) -> tuple[list[int], Tensor | None]:
        """What image `b` had generated at `row` after `steps` steps, then `last` if given, and its maps `[T, L]`."""
        tokens = [] if last is None else [last]
        rows = [] if last is None else [row]
        for t in reversed(range(steps)):
            tokens.append(int(self.tokens[t][b, row]))
            row = int(self.parents[t][b, row])
            rows.append(row)
        maps = [self.attention[t][b, row] for t, row in enumerate(reversed(rows))] if self.attention else []
        return tokens[::-1], torch.stack(maps) if maps else None
