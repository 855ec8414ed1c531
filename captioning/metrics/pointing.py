"""The pointing score: does the attention of the step that predicts a noun peak inside the box of the object it names?

B images, N captions each, C prediction steps, L context vectors on a grid of h rows and w columns, K nouns in all.

The attention is that of teacher forcing on the references. Step t has read BOS w_0 .. w_{t-1} and predicts w_t, so the
step that predicts a word has the word's own index. The score follows the "pointing game" of Zhang et al., "Top-down
Neural Attention by Excitation Backprop" (2016), without their tolerance around the box: a hit is a peak cell whose
centre lies in the box. Compare it with the score of the same captions on other images' features: boxes are not spread
evenly over pictures, so that a model that never looks scores well above nothing.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from captioning.data.example import Box, Reference

Nouns = Sequence[Sequence[Sequence[tuple[int, Box]]]]
"""For each image, for each of its captions: the nouns' word indices, counted from 0, and boxes."""


def within(frame: Box, box: Box) -> Box:
    """The box in fractions of the frame; both come in fractions of the image.

    (D) What lies outside of a frame that shows a part of the image is never pointed at, and counts as missed.
    """
    if frame == (0, 0, 1, 1):
        return box
    left, top, right, bottom = frame
    width, height = right - left, bottom - top
    return (box[0] - left) / width, (box[1] - top) / height, (box[2] - left) / width, (box[3] - top) / height


def framed(references: Iterable[Reference], frame: Box) -> list[list[tuple[int, Box]]]:
    """The nouns of one image's references, boxes `within` the frame."""
    return [[(noun.word, within(frame, noun.box)) for noun in reference.nouns] for reference in references]


def pointing_hits(attention: Tensor, nouns: Nouns, grid: tuple[int, int]) -> Tensor:
    """Tells for each noun whether the attention of its step peaks inside its box, edges included.

    Args:
        attention: `[B, N, C, L]`, L in row order of the grid, heads already averaged.
        nouns: B lists of up to N lists; captions that only pad the batch may be left out or have no nouns.
        grid: (h, w) with h * w = L.

    Returns:
        `[K]` bool, in the order of `nouns`.

    Raises:
        ValueError: the shapes do not fit, or a noun lies beyond the last step.
    """
    images, captions, steps, locations = attention.shape
    height, width = grid
    if locations != height * width:
        raise ValueError(f"attention over {locations} locations does not fit a grid of {height} x {width}")
    if len(nouns) != images:
        raise ValueError(f"nouns of {len(nouns)} images came with the attention of {images}")
    found = [
        (image, caption, word, box)
        for image, rows in enumerate(nouns)
        for caption, row in enumerate(rows)
        for word, box in row
    ]
    if not found:
        return torch.zeros(0, dtype=torch.bool, device=attention.device)
    for image, caption, word, _ in found:
        if caption >= captions or not 0 <= word < steps:
            raise ValueError(
                f"noun at word {word} of caption {caption} of image {image}: the attention has {captions} captions of "
                f"{steps} steps"
            )
    places = torch.tensor([entry[:3] for entry in found], device=attention.device)  # [K, 3]
    left, top, right, bottom = torch.tensor([entry[3] for entry in found], device=attention.device).unbind(1)
    peak = attention[tuple(places.unbind(1))].argmax(dim=-1)  # [K]
    x = (peak % width + 0.5) / width
    y = (peak // width + 0.5) / height
    return (left <= x) & (x <= right) & (top <= y) & (y <= bottom)


class PointingScore(Metric):
    """The percentage of nouns whose peak of attention lies in the box of the object that they name.

    `compute` gives 0 where there was no noun at all.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    hits: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("hits", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, attention: Tensor, nouns: Nouns, grid: tuple[int, int]) -> None:
        """Adds a batch; the arguments are those of `pointing_hits`."""
        hits = pointing_hits(attention, nouns, grid)
        self.hits += hits.sum()
        self.count += hits.numel()

    def compute(self) -> Tensor:
        """Returns a scalar from 0 to 100."""
        return 100 * self.hits / self.count.clamp(min=1)
