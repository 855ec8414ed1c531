"""Does attention move? Hard attention is known to end with nearly the same map at every step.

T steps, L context vectors.
"""

from collections.abc import Iterable

import torch
from torch import Tensor
from torchmetrics import Metric

STATISTICS = ("attention entropy", "attention entropy variance", "attention movement", "attention coverage")


class AttentionStatistics(Metric):
    """Statistics of the maps of captions, each caption's mean over its steps first, then the mean over captions.

    - attention entropy: in nats; log L for an even map, 0 for a single location.
    - attention entropy variance: of a caption's entropies over its steps.
    - attention movement: half the L1 distance between the maps of consecutive steps; 0 where they are the same, 1
      where they do not overlap. Captions of one step have none and are left out of this one.
    - attention coverage: the percentage of locations that have at least their even share 1/L at some step.

    `compute` gives not-a-number where there was nothing to measure.
    """

    is_differentiable = False
    full_state_update = False

    sums: Tensor
    counts: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("sums", torch.zeros(len(STATISTICS), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(len(STATISTICS), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, maps: Iterable[Tensor]) -> None:
        """Adds captions' maps `[T, L]`, T at least 1, each row a distribution."""
        for attention in maps:
            alpha = attention.double()
            entropy = torch.special.entr(alpha).sum(dim=-1)
            distances = alpha.diff(dim=0).abs().sum(dim=-1) / 2
            # rounding, coarse in half precision, must not decide about an even map
            attended = (alpha >= (1 - 1e-2) / alpha.shape[-1]).any(dim=0)
            moved = len(distances) > 0
            movement = distances.mean() if moved else torch.zeros((), dtype=alpha.dtype)
            coverage = 100 * attended.double().mean()
            values = torch.stack([entropy.mean(), entropy.var(correction=0), movement, coverage])
            self.sums += values.to(self.sums.device)
            self.counts += torch.tensor([1, 1, int(moved), 1], device=self.counts.device)

    def compute(self) -> dict[str, Tensor]:
        """The statistics by name."""
        return dict(zip(STATISTICS, self.sums / self.counts, strict=True))
