"""Reader of `data=shapes`, which draws the data set on first use.

Annotation files are in COCO's format with a box in pixels for every noun; `word` counts the
caption's words from 0:

    {"info": {...}, "images": [{"id", "file_name", "width", "height"}],
     "annotations": [{"id", "image_id", "caption", "nouns": [{"word", "bbox": [x, y, width,
     height]}]}]}
"""

import json
from collections import defaultdict
from math import cos, pi, sin
from pathlib import Path
from random import Random
from typing import Annotated, Any

import numpy as np
import yaml
from filelock import FileLock
from PIL import Image, ImageDraw

from captioning.config.types import UserPath, between, validated_class
from captioning.data.example import SPLITS, Box, Example, Noun, Reference
from captioning.data.shapes.phrasing import REFERENCES, phrases
from captioning.data.shapes.scene import MAX_OBJECTS, Scene, random_scene
from captioning.errors import quoted
from captioning.files import atomic_folder, packaged_text, read_bytes, refuse_damage, sha256
from captioning.progress import progress_bar

FORMAT = 1
"""Increase this when drawings or files change; folders of older formats are then ignored."""
SPLIT_LIMIT = 1_000_000
"""Largest number of scenes in a split; image ids of split n start at n times this."""
USUAL_SIZE = 224
"""Side of pictures for backbones whose size is unknown until they are built."""
Scenes = Annotated[int, between(1, SPLIT_LIMIT)]

OVERSAMPLING = 4
"""Scenes are drawn at this multiple of their size and averaged down, which smooths the edges."""
BACKGROUND = (236, 236, 236)
_NOTCH = 0.42  # radius of the notches of a star, whose points have 1
_STAR = np.array(
    [
        ((1, _NOTCH)[k % 2] * sin(k * pi / 5), -(1, _NOTCH)[k % 2] * cos(k * pi / 5))
        for k in range(10)
    ]
)
_DRAWING = yaml.safe_load(packaged_text(__package__, "drawing.yaml"))
INKS = {colour: tuple(ink) for colour, ink in _DRAWING["inks"].items()}
OUTLINES = {name: [*map(tuple, corners)] for name, corners in _DRAWING["outlines"].items()}
OUTLINES["star"] = (2 * (_STAR - _STAR.min(0)) / (_STAR.max(0) - _STAR.min(0)) - 1).tolist()
"""Corners of each shape except the circle, in a box from -1 to 1 whose four sides they touch."""


@validated_class
class ShapesReader:
    """Scenes of coloured shapes with five captions each, determined by the arguments.

    Scene k of a split depends on `seed`, `max_objects` and k, but not on the number of scenes; its
    content does not depend on `size`. Splits share no scene. The pairs `HELD_OUT` of colour and
    shape occur only in a share `HELD_OUT_SHARE` of the validation and test scenes (both in
    `captioning.data.shapes.scene`).
    """

    # parent folder of the data sets, each in a folder named by a digest of the arguments
    root: UserPath
    train: Scenes = 8000
    val: Scenes = 500
    test: Scenes = 500
    # all numbers up to it are as frequent
    max_objects: Annotated[int, between(1, MAX_OBJECTS)] = MAX_OBJECTS
    # side of the pictures in pixels; None: `USUAL_SIZE`
    size: Annotated[int, between(32, 512)] | None = 112
    seed: Annotated[int, between(0, 2**63 - 1)] = 0

    @property
    def writes_to(self) -> Path:
        """The folder of this data set; only readers that write files have this attribute."""
        digest = sha256(json.dumps(self.arguments(), sort_keys=True))
        return self.root / f"shapes-{digest[:16]}"

    def __call__(self) -> dict[str, list[Example]]:
        """Return the examples of `train`, `val` and `test`; draw them first if necessary."""
        folder = self.writes_to
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(folder.with_suffix(".lock")):
                if not folder.is_dir():  # another process may have drawn it meanwhile
                    with atomic_folder(folder) as draft:
                        for split in SPLITS:
                            self._draw(split, draft)
        return {split: read_annotations(folder / f"captions_{split}.json") for split in SPLITS}

    def arguments(self) -> dict[str, int]:
        """What the data set depends on; readers of other drawn data add theirs."""
        numbers = {name: getattr(self, name) for name in (*SPLITS, "max_objects")}
        return {"format": FORMAT, **numbers, "size": self.size or USUAL_SIZE, "seed": self.seed}

    def _draw(self, split: str, folder: Path) -> None:
        """Draw a split into a folder, with its annotations."""
        (folder / split).mkdir()
        side, first = self.size or USUAL_SIZE, SPLITS.index(split) * SPLIT_LIMIT
        images, captions = [], []
        for number in progress_bar(
            f"Drawing shapes of {split}", None, "scene", iterable=range(getattr(self, split))
        ):
            # seeding with a string is the same on every machine
            rng = Random(f"{self.seed}/{split}/{number}")
            image_id = first + number
            path, described = self.draw_example(folder / split / f"{number:06d}", split, rng, side)
            name = path.relative_to(folder).as_posix()
            images.append({"id": image_id, "file_name": name, "width": side, "height": side})
            for position, (text, nouns) in enumerate(described):
                key = image_id * REFERENCES + position
                captions.append({"id": key, "image_id": image_id, "caption": text, "nouns": nouns})
        content = {"info": self.arguments(), "images": images, "annotations": captions}
        (folder / f"captions_{split}.json").write_text(json.dumps(content), encoding="utf-8")

    def draw_example(
        self, path: Path, split: str, rng: Random, side: int
    ) -> tuple[Path, list[tuple[str, list[Any]]]]:
        """Draw one example at `path` plus a suffix; return its path, and its captions with their
        nouns.
        """
        scene, path = random_scene(rng, split, self.max_objects), path.with_suffix(".png")
        draw_scene(scene, side).save(path)
        return path, [
            (p.text, [{"word": word, "bbox": _pixels(t.box, side)} for word, t in p.nouns])
            for p in phrases(scene, rng)
        ]


def _pixels(box: Box, side: int) -> list[float]:
    left, top, right, bottom = (value * side for value in box)
    return [round(value, 3) for value in (left, top, right - left, bottom - top)]


def draw_scene(scene: Scene, size: int) -> Image.Image:
    """Draw `scene` as an RGB picture of `size` x `size` pixels."""
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


def read_annotations(path: Path) -> list[Example]:
    """Read an annotation file; picture names are relative to its folder."""
    with refuse_damage(path, "delete its folder, and drawn scenes are drawn again"):
        content = json.loads(read_bytes(path))
        sides = {image["id"]: (image["width"], image["height"]) for image in content["images"]}
        references = defaultdict(list)
        for entry in content["annotations"]:
            width, height = sides[entry["image_id"]]
            words, nouns = tuple(entry["caption"].split()), []
            for noun in entry["nouns"]:
                if not 0 <= noun["word"] < len(words):
                    raise ValueError(f"{quoted(entry)} has a noun that is none of its words")
                left, top, across, down = noun["bbox"]
                box = (left / width, top / height, (left + across) / width, (top + down) / height)
                nouns.append(Noun(noun["word"], box))
            references[entry["image_id"]].append(Reference(entry["caption"], words, tuple(nouns)))
        return [
            Example(image["id"], path.parent / image["file_name"], tuple(references[image["id"]]))
            for image in content["images"]
        ]
