"""Diversity of several captions of an image.

Li et al., "A Diversity-Promoting Objective Function", 2016, image by image as Shetty et al.,
"Speaking the Same Language", ICCV 2017.
"""

from itertools import pairwise

from captioning.metrics.metric import MAIN, Images, Metric, Score, Texts
from captioning.metrics.statistics import MetricResult


class Diversity(Metric):
    """Different words, and different pairs of words, of all that the captions of an image have."""

    name = "diversity"
    scores = tuple(
        Score(f"distinct-{n} (per image)", MAIN, "%", best="max", per_image=True, mean=True)
        for n in (1, 2)
    )

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        shares = []
        for texts in captions:
            words = [text.split() for text in texts]
            every = [word for caption in words for word in caption]
            pairs = [pair for caption in words for pair in pairwise(caption)]
            shares.append([len({*terms}) / max(1, len(terms)) for terms in (every, pairs)])
        names = [score.name for score in self.scores]
        return MetricResult.from_means(dict(zip(names, zip(*shares, strict=True), strict=True)))
