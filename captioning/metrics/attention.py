"""Scores of attention maps: where they look, and whether they point at what a word names.

B images, N captions each, T or C steps, L context vectors on a grid of h rows and w columns, K
nouns in all.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torchmetrics import MeanMetric, Metric

from captioning.data.example import Box, Reference

STATISTICS = (
    "attention entropy",
    "attention entropy variance",
    "attention movement",
    "attention coverage",
)
Nouns = Sequence[Sequence[Sequence[tuple[int, Box]]]]
"""For each image, for each of its captions: the nouns' word indices, counted from 0, and boxes."""


class AttentionStatistics(Metric):
    """Mean over captions of statistics of their maps.

    Hard attention is known to end with nearly the same map always.

    Each is a caption's mean over its steps first, and not-a-number where there was nothing to
    measure:

    - attention entropy: in nats; log L for an even map, 0 for a single location.
    - attention entropy variance: of a caption's entropies over its steps.
    - attention movement: half the L1 distance between the maps of consecutive steps; 0 where they
      are the same, 1 where they do not overlap. Captions of one step have none and are left out of
      this one.
    - attention coverage: the percentage of locations that have at least their even share 1/L at
      some step.
    """

    sums: Tensor
    counts: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("sums", "counts"):
            self.add_state(
                name, torch.zeros(len(STATISTICS), dtype=torch.float64), dist_reduce_fx="sum"
            )

    def update(self, maps: Iterable[Tensor]) -> None:
        """Add captions' maps `[T, L]`, T at least 1, each row a distribution."""
        for attention in maps:
            alpha = attention.double()
            entropy = torch.special.entr(alpha).sum(-1)
            distances = alpha.diff(dim=0).abs().sum(-1) / 2
            # rounding, coarse in half precision, must not decide about an even map
            attended = (alpha >= (1 - 1e-2) / alpha.shape[-1]).any(0)
            moved = len(distances) > 0
            movement = distances.mean() if moved else alpha.new_zeros(())
            coverage = 100 * attended.double().mean()
            values = torch.stack([entropy.mean(), entropy.var(correction=0), movement, coverage])
            self.sums += values.to(self.sums.device)
            self.counts += torch.tensor([1, 1, moved, 1], device=self.counts.device)

    def compute(self) -> dict[str, Tensor]:
        """The statistics by name."""
        return dict(zip(STATISTICS, self.sums / self.counts, strict=True))


def on_full_image(references: Iterable[Reference], frame: Box) -> list[list[tuple[int, Box]]]:
    """The nouns of one image's references, boxes in fractions of the frame in place of the image.

    (D) A box outside of a frame that shows a part of the image is never pointed at, and counts as
    missed.
    """
    left, top, right, bottom = frame
    width, height = right - left, bottom - top

    def within(box: Box) -> Box:
        x, y, x2, y2 = box
        return (x - left) / width, (y - top) / height, (x2 - left) / width, (y2 - top) / height

    return [[(noun.word, within(noun.box)) for noun in reference.nouns] for reference in references]


def pointing_hits(attention: Tensor, nouns: Nouns, grid: tuple[int, int]) -> Tensor:
    """Return `[K]` bool: attention of each noun's step peaks inside its box, edges included.

    Args:
        attention: `[B, N, C, L]`, L in row order of the grid, heads already averaged.
        nouns: B lists of up to N lists.
        grid: (h, w).
    """
    height, width = grid
    assert (len(attention), attention.shape[3]) == (len(nouns), height * width)
    places = [
        (i, n, word, *box)
        for i, rows in enumerate(nouns)
        for n, row in enumerate(rows)
        for word, box in row
    ]
    columns = torch.tensor(places, device=attention.device).reshape(len(places), 7).T
    image, caption, step = columns[:3].long()
    peak = attention[image, caption, step].argmax(-1)  # [K]
    left, top, right, bottom = columns[3:]
    x = (peak % width + 0.5) / width
    y = (peak // width + 0.5) / height
    return (left <= x) & (x <= right) & (top <= y) & (y <= bottom)


class PointingScore(MeanMetric):
    """Percentage of nouns whose attention peaks in their object's box.

    Under teacher forcing step t has read BOS w_0 .. w_{t-1} and predicts w_t: a word is judged at
    the step of its own index. As in the "pointing game" of Zhang et al., "Top-down Neural Attention
    by Excitation Backprop" (2016), without their tolerance around the box. Compare it with the
    score of the same captions on other images' features: boxes are not spread evenly over pictures,
    so that a model that never looks scores well above nothing.
    """

    def update(  # type: ignore[override]
        self, attention: Tensor, nouns: Nouns, grid: tuple[int, int]
    ) -> None:
        """Add a batch; the arguments are those of `pointing_hits`."""
        super().update(100.0 * pointing_hits(attention, nouns, grid))
