"""Draws a scene: `OVERSAMPLING` times too large, then averaged down, which smooths the edges."""

import math

from PIL import Image, ImageDraw

from captioning.data.shapes.scene import Scene

OVERSAMPLING = 4
BACKGROUND = (236, 236, 236)
INKS = {
    "red": (214, 32, 36),
    "orange": (255, 132, 0),
    "yellow": (250, 214, 0),
    "green": (24, 145, 54),
    "blue": (28, 84, 216),
    "purple": (120, 40, 160),
    "pink": (255, 140, 195),
    "black": (20, 20, 20),
}


def _stretched(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Scales an outline so that it touches all four sides of the box from -1 to 1."""
    spans = [(min(values), max(values)) for values in zip(*points, strict=True)]
    return [
        (
            2 * (x - spans[0][0]) / (spans[0][1] - spans[0][0]) - 1,
            2 * (y - spans[1][0]) / (spans[1][1] - spans[1][0]) - 1,
        )
        for x, y in points
    ]


_ARM = 0.34  # half the width of a cross's bars
_STAR_RADII = (1.0, 0.42)  # of the points and of the notches of a star
OUTLINES = {
    "square": [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)],
    "triangle": [(0.0, -1.0), (1.0, 1.0), (-1.0, 1.0)],
    "diamond": [(0.0, -1.0), (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)],
    "star": _stretched(
        [
            (_STAR_RADII[k % 2] * math.sin(k * math.pi / 5), -_STAR_RADII[k % 2] * math.cos(k * math.pi / 5))
            for k in range(10)
        ]
    ),
    "cross": [
        *[(-_ARM, -1.0), (_ARM, -1.0), (_ARM, -_ARM), (1.0, -_ARM), (1.0, _ARM), (_ARM, _ARM)],
        *[(_ARM, 1.0), (-_ARM, 1.0), (-_ARM, _ARM), (-1.0, _ARM), (-1.0, -_ARM), (-_ARM, -_ARM)],
    ],
}
"""Corners of each shape but the circle, in a box from -1 to 1 all of whose sides they touch."""


def draw(scene: Scene, size: int) -> Image.Image:
    """Draws `scene` as an RGB picture of `size` x `size` pixels."""
    side = size * OVERSAMPLING
    canvas = Image.new("RGB", (side, side), BACKGROUND)
    pen = ImageDraw.Draw(canvas)
    for thing in scene.things:
        left, top, right, bottom = (round(value * side) for value in thing.box)
        right, bottom = right - 1, bottom - 1  # Pillow paints the last pixel too
        if thing.shape == "circle":
            pen.ellipse((left, top, right, bottom), fill=INKS[thing.colour])
        else:
            corners = [
                (left + (1 + x) / 2 * (right - left), top + (1 + y) / 2 * (bottom - top))
                for x, y in OUTLINES[thing.shape]
            ]
            pen.polygon(corners, fill=INKS[thing.colour])
    return canvas.reduce(OVERSAMPLING)
