"""Descriptions of drawn scenes in two artificial languages, with the alignment of their words.

The source describes a scene. In the other language every word is spelt backwards and articles are
dropped. Objects are in reverse order, each noun before its attributes, and all other words are at
the end:

    a small red circle above a blue square      erauqs eulb elcric der llams evoba
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from captioning.config.types import validated
from captioning.data.example import SPLITS, Example, Reference
from captioning.data.shapes.dataset import Scenes
from captioning.data.shapes.phrasing import phrases
from captioning.data.shapes.scene import COLOURS, MAX_OBJECTS, SHAPES, SIZES, random_scene

ARTICLES, ATTRIBUTES = ("a", "an", "the", "one"), (*SIZES, *COLOURS)


def translation(source: Sequence[str]) -> tuple[tuple[str, ...], list[int]]:
    """The words of the other language, and for each of them the place of the one that it
    translates, from 0.
    """
    things: list[list[int]] = [[]]
    others = []
    for place, word in enumerate(source):
        if word in (*ATTRIBUTES, *SHAPES):
            things[-1].insert(0, place)
            things += [[]] * (word in SHAPES)
        elif word not in ARTICLES:
            others.append(place)
    places = [place for thing in reversed(things) for place in thing] + others
    return tuple(source[place][::-1] for place in places), places


@dataclass(frozen=True)
class TwoLanguages:
    """One sentence of each scene with its translation, determined by the numbers; splits share no
    scene.
    """

    train: Scenes = 8000
    val: Scenes = 200
    test: Scenes = 400
    seed: int = 0

    def __call__(self) -> dict[str, list[Example]]:
        """Make `train`, `val` and `test`."""
        return {
            split: [self._pair(split, number) for number in range(getattr(self, split))]
            for split in SPLITS
        }

    def _pair(self, split: str, number: int) -> Example:
        rng = Random(f"{self.seed}/{split}/{number}")
        source = tuple(phrases(random_scene(rng, split, MAX_OBJECTS), rng)[0].text.split())
        target, _ = translation(source)
        return Example(number, Path(split), (Reference(" ".join(target), target),), source=source)


TwoLanguages.__init__ = validated(TwoLanguages.__init__)  # type: ignore[method-assign]
