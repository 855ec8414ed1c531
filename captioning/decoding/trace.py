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
        maps: of `[B, N, L]`, those of each hypothesis before its choice (`Step.maps`).
    """

    tokens: list[Tensor] = field(default_factory=list)
    parents: list[Tensor] = field(default_factory=list)
    maps: list[tuple[Tensor, ...]] = field(default_factory=list)

    def add(self, tokens: Tensor, parents: Tensor, maps: tuple[Tensor, ...]) -> None:
        """Records one step."""
        self.tokens.append(tokens)
        self.parents.append(parents)
        self.maps.append(maps)

    def cpu(self) -> "Trace":
        """A copy to read from."""
        tokens, parents = ([x.cpu() for x in xs] for xs in (self.tokens, self.parents))
        return Trace(tokens, parents, [tuple(x.cpu() for x in maps) for maps in self.maps])

    def read(self, b: int, row: int, steps: int, last: int | None) -> tuple[list[int], list[Tensor]]:
        """What image `b` had generated at `row` after `steps` steps, then `last` if given, and its maps `[T, L]`."""
        tokens = [] if last is None else [last]
        rows = [] if last is None else [row]
        for t in reversed(range(steps)):
            tokens.append(int(self.tokens[t][b, row]))
            row = int(self.parents[t][b, row])
            rows.append(row)
        maps = [[x[b, row] for x in self.maps[t]] for t, row in enumerate(reversed(rows))]
        return tokens[::-1], [torch.stack(each) for each in zip(*maps, strict=True)]
