"""Reader of `data=moving_shapes`: clips in which one or two coloured shapes move straight.

A clip is a folder of K images, drawn on first use. The same images in the opposite order are as
likely, with the opposite captions, so only the order gives the direction.
"""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated, Any

from annotated_types import Interval

from captioning.config.types import validated_class
from captioning.data.shapes.dataset import ShapesReader, draw_scene
from captioning.data.shapes.phrasing import article
from captioning.data.shapes.scene import GAP, MARGIN, SEEN, SIZES, Scene, Thing

WAYS = {"to the left": (-1, 0), "to the right": (1, 0), "up": (0, -1), "down": (0, 1)}
TEMPLATES = ("{} moves {}", "{} goes {}", "there is {} that moves {}")
NEAREST = 0.35  # the least that a shape moves, as a fraction of the picture's side

Movement = tuple[Thing, Thing, str]
"""A thing at the first and at the last frame, and its way."""


@validated_class
class MovingShapesReader(ShapesReader):
    """Clips of `frames` pictures with captions in three phrasings, determined by the arguments."""

    max_objects: Annotated[int, Interval(ge=1, le=2)] = 2
    frames: Annotated[int, Interval(ge=2, le=100)] = 8

    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "moving": self.frames}

    def draw_example(
        self, path: Path, split: str, rng: Random, side: int
    ) -> tuple[Path, list[tuple[str, list[Any]]]]:
        movements = random_movements(rng, rng.randint(1, self.max_objects))
        path.mkdir()
        for frame in range(self.frames):
            things = tuple(_at(movement, frame / (self.frames - 1)) for movement in movements)
            draw_scene(Scene("moving", things), side).save(path / f"{frame:02d}.png")
        return path, [(text, []) for text in described(movements)]


def random_movements(rng: Random, count: int) -> list[Movement]:
    """Draw things that move straight across the picture and never touch."""
    while True:
        movements = []
        for colour, shape in rng.sample(SEEN, count):
            size, way = rng.choice(tuple(SIZES)), rng.choice(tuple(WAYS))
            low, high = MARGIN + SIZES[size], 1 - MARGIN - SIZES[size]
            ends = sorted(rng.uniform(low, high) for _ in range(2))
            beside, (across, down) = rng.uniform(low, high), WAYS[way]
            places = [(end, beside) if across else (beside, end) for end in ends[:: across + down]]
            first, last = (Thing(colour, shape, size, *place) for place in places)
            if ends[1] - ends[0] >= NEAREST:
                movements.append((first, last, way))
        if len(movements) == count and (count == 1 or _apart(*movements)):
            return movements


def _at(movement: Movement, share: float) -> Thing:
    first, last, _ = movement
    return replace(
        first, x=first.x + share * (last.x - first.x), y=first.y + share * (last.y - first.y)
    )


def _apart(one: Movement, other: Movement) -> bool:
    pairs = [(_at(one, share / 20), _at(other, share / 20)) for share in range(21)]
    return all(max(abs(a.x - b.x), abs(a.y - b.y)) >= a.radius + b.radius + GAP for a, b in pairs)


def described(movements: list[Movement]) -> list[str]:
    """Say of each thing where it moves, in each phrasing."""
    named = [(f"{thing.colour} {thing.shape}", way) for thing, _, way in movements]
    names = [(f"{article(name)} {name}", way) for name, way in named]
    return [" and ".join(template.format(*name) for name in names) for template in TEMPLATES]
