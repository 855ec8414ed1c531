"""A metric: colours that captions name and that their image does not show.

B images. A pixel that is neither grey nor dark has the colour of the nearest hue; hue, saturation
and value are 0-255, as in Pillow.
"""

from collections.abc import Sequence

import numpy as np

from captioning.data.words import ENGLISH
from captioning.errors import CaptioningError
from captioning.metrics.metric import (
    HALLUCINATION,
    Images,
    Metric,
    ScoredImage,
    ScoreType,
    Texts,
    first_captions,
)
from captioning.metrics.statistics import MetricResult

HUES = {"red": 0, "orange": 21, "yellow": 42, "green": 85, "blue": 155, "purple": 200}
"""Of 256 on a circle."""
SATURATION, VALUE = 80, 60
SIDE = 128  # pixels of the image that is judged
SHARE = 0.005  # of the pixels that show a colour


class NamedColours(Metric):
    """The percentage of named colours that the image does not show."""

    name = "colours"
    scores = (ScoreType("colours not shown", HALLUCINATION, "%", best="min", per_image=True),)
    languages = (ENGLISH,)

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        if images is None:
            raise CaptioningError(f"metrics={self.name} needs the images of the captions")
        counts = []
        for text, image in zip(first_captions(captions), images, strict=True):
            named = [word for word in text.split() if word in HUES]
            shown = colours_of(image) if named else []
            counts.append([(sum(word not in shown for word in named), len(named))])
        return MetricResult.from_shares([self.scores[0].name], counts)


def colours_of(image: ScoredImage) -> Sequence[str]:
    """The colours of `HUES` that some pixels have."""
    # here, because what parses settings knows no pictures
    from captioning.data.images import open_image

    if image.path is None:
        raise CaptioningError(f"the file of image {image.image_id} is not known")
    with open_image(image.path) as picture:
        pixels = np.asarray(picture.convert("RGB").resize((SIDE, SIDE)).convert("HSV"))
    hue, saturation, value = pixels.reshape(-1, 3).astype(int).T
    hue = hue[(saturation >= SATURATION) & (value >= VALUE)]
    distances = np.abs((hue - np.array([*HUES.values()])[:, None] + 128) % 256 - 128)
    counts = np.bincount(distances.argmin(axis=0), minlength=len(HUES))
    return [name for name, count in zip(HUES, counts, strict=True) if count >= SHARE * SIDE**2]
