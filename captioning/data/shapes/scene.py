"""Random scenes of one to four coloured shapes with unambiguous spatial relations.

Lengths are fractions of the picture's side; x grows to the right, y downwards. A random scene is
kept only if every statement that its captions may contain is obvious: boxes are at least `GAP`
apart, a thing is "left of" another only if the horizontal distance is at least `DOMINANCE` times
the vertical one, and so on.
"""

from dataclasses import dataclass
from itertools import combinations
from random import Random

from captioning.data.example import Box
from captioning.files import sha256

COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "black")
SHAPES = ("circle", "square", "triangle", "diamond", "star", "cross")
SIZES = {"small": 0.075, "medium": 0.12, "large": 0.18}
"""Half the side of a thing's box. Captions do not mention "medium"."""

HELD_OUT = (
    ("red", "triangle"),
    ("blue", "star"),
    ("green", "diamond"),
    ("yellow", "circle"),
    ("purple", "square"),
    ("black", "cross"),
)
"""Pairs of colour and shape that occur in no training scene."""
SEEN = tuple(
    (colour, shape) for colour in COLOURS for shape in SHAPES if (colour, shape) not in HELD_OUT
)
HELD_OUT_SHARE = 0.1
"""Share of validation and test scenes in which exactly one thing is a held-out pair."""

MAX_OBJECTS = 4
LAYOUTS = {1: ("single",), 2: ("pair",), 3: ("corner", "row"), MAX_OBJECTS: ("grid",)}

MARGIN = 0.03  # between a box and the picture's edge
GAP = 0.04  # between two boxes
DOMINANCE = 2.5  # smallest ratio of the two distances at which the longer one names the relation
DIAGONAL = 1.6  # largest ratio at which two things are diagonal to each other
# a lone thing's centre: largest distances from an edge, from the middle
EDGE_ZONE, CENTRE_ZONE = 0.26, 0.08


Point = tuple[float, float]


@dataclass(frozen=True)
class Thing:
    """One shape; (x, y) is the centre of its square box."""

    colour: str
    shape: str
    size: str
    x: float
    y: float

    @property
    def radius(self) -> float:
        """Half the side of the box."""
        return SIZES[self.size]

    @property
    def box(self) -> Box:
        """Left, top, right, bottom."""
        r = self.radius
        return self.x - r, self.y - r, self.x + r, self.y + r


@dataclass(frozen=True)
class Scene:
    """A layout and its things, in the order A, B, C, D of its captions.

    `single`: A. `pair`: A left of B, or A above B. `corner`: A left or right of B, above or below
    C; B, C diagonal. `row`: A, B, C from left to right or from top to bottom. `grid`: A left of B,
    both above C left of D.
    """

    layout: str
    things: tuple[Thing, ...]

    @property
    def split(self) -> str:
        """The only split for this scene, by a digest of its content; 8 of 10 are training scenes.

        The content is each thing's size, colour, shape and cell of a 3 x 3 grid over the picture.
        Scenes of the same content are therefore always in the same split, for any seed and number
        of scenes.
        """
        content = sorted(
            f"{t.size} {t.colour} {t.shape} {int(3 * t.x)} {int(3 * t.y)}" for t in self.things
        )
        bucket = int(sha256("; ".join(content))[:16], 16) % 10
        return {8: "val", 9: "test"}.get(bucket, "train")


def relation(a: Thing, b: Thing) -> str | None:
    """Position of `a` relative to `b`: "left", "right", "above", "below", or None if ambiguous."""
    across, down = b.x - a.x, b.y - a.y
    reach = a.radius + b.radius + GAP
    if abs(across) >= max(reach, DOMINANCE * abs(down)):
        return "left" if across > 0 else "right"
    if abs(down) >= max(reach, DOMINANCE * abs(across)):
        return "above" if down > 0 else "below"
    return None


def random_scene(rng: Random, split: str, max_objects: int) -> Scene:
    """Draw a scene of `split` with 1 to `max_objects` things."""
    count = rng.randint(1, max_objects)
    layout = rng.choice(LAYOUTS[count])
    holds_out = split != "train" and rng.random() < HELD_OUT_SHARE
    while True:
        kinds = rng.sample(SEEN, count)
        if holds_out:
            kinds[rng.randrange(count)] = rng.choice(HELD_OUT)
        sizes = [rng.choice(tuple(SIZES)) for _ in kinds]
        centres = _place(rng, _offsets(rng, layout), sizes)
        if centres is None:
            continue
        drawn = zip(kinds, sizes, centres, strict=True)
        scene = Scene(layout, tuple(Thing(*kind, size, *centre) for kind, size, centre in drawn))
        if _is_plain(scene) and scene.split == split:
            return scene


def _offsets(rng: Random, layout: str) -> list[Point]:
    """Propose positions of the things relative to A."""

    def step(direction: str, longest: float = 0.65) -> Point:
        ahead = rng.uniform(0.2, longest)
        aside = rng.uniform(-1, 1) * ahead / DOMINANCE
        ways = {
            "right": (ahead, aside),
            "left": (-ahead, aside),
            "down": (aside, ahead),
            "up": (aside, -ahead),
        }
        return ways[direction]

    start = (0.0, 0.0)
    if layout == "single":
        return [start]
    if layout == "pair":
        return [start, step(rng.choice(("right", "down")))]
    if layout == "corner":
        return [start, step(rng.choice(("left", "right"))), step(rng.choice(("up", "down")))]
    if layout == "row":
        direction = rng.choice(("right", "down"))
        second = step(direction, longest=0.4)
        return [start, second, _sum(second, step(direction, longest=0.4))]
    second = step("right")
    return [start, second, step("down"), _sum(second, step("down"))]


def _sum(a: Point, b: Point) -> Point:
    return a[0] + b[0], a[1] + b[1]


def _place(rng: Random, offsets: list[Point], sizes: list[str]) -> list[Point] | None:
    """Move the things together to a random place inside the picture; None if they do not fit."""
    axes = []
    radii = [SIZES[size] for size in sizes]
    for values in zip(*offsets, strict=True):
        low = MARGIN - min(value - radius for value, radius in zip(values, radii, strict=True))
        high = 1 - MARGIN - max(map(sum, zip(values, radii, strict=True)))
        if low > high:
            return None
        shift = rng.uniform(low, high)
        axes.append([round(value + shift, 3) for value in values])
    return list(zip(*axes, strict=True))


def _is_plain(scene: Scene) -> bool:
    """True if every statement that captions of this layout may contain is unambiguous."""
    things = scene.things
    if scene.layout == "single":
        return all(
            min(value, 1 - value) <= EDGE_ZONE or abs(value - 0.5) <= CENTRE_ZONE
            for value in (things[0].x, things[0].y)
        )
    pairs = combinations(things, 2)
    if any(max(abs(a.x - b.x), abs(a.y - b.y)) < a.radius + b.radius + GAP for a, b in pairs):
        return False
    a, b = things[:2]
    if scene.layout == "pair":
        return relation(a, b) in ("left", "above")
    c = things[2]
    if scene.layout == "corner":
        short, long = sorted((abs(b.x - c.x), abs(b.y - c.y)))
        beside, over = relation(a, b) in ("left", "right"), relation(a, c) in ("above", "below")
        return beside and over and long <= DIAGONAL * short
    if scene.layout == "row":
        return relation(a, c) in ("left", "above") and relation(a, b) == relation(b, c) == relation(
            a, c
        )
    d = things[3]
    rows_apart = max(a.box[3], b.box[3]) + GAP <= min(c.box[1], d.box[1])
    return (
        rows_apart
        and relation(a, b) == relation(c, d) == "left"
        and relation(a, c) == relation(b, d) == "above"
    )
