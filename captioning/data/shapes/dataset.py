"""The reader of `data=shapes`: draws the data set at its first call, only reads it afterwards.

Annotation files are in COCO form with a box for every noun, in pixels; `word` counts the caption's words from 0:

    {"info": {...}, "images": [{"id", "file_name", "width", "height"}],
     "annotations": [{"id", "image_id", "caption", "nouns": [{"word", "bbox": [x, y, width, height]}]}]}
"""

import hashlib
import json
import shutil
import uuid
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any

from annotated_types import Interval

from captioning.config.types import validated
from captioning.data.example import Example, Noun, Reference
from captioning.data.shapes.drawing import draw
from captioning.data.shapes.phrasing import REFERENCES, Phrase, phrases
from captioning.data.shapes.scene import MAX_OBJECTS, SPLITS, random_scene
from captioning.errors import CaptioningError
from captioning.progress import counter

FORMAT = 1
"""Increase it with every change of what is drawn or written: older folders are then no longer read."""
SPLIT_LIMIT = 1_000_000
"""Scenes of a split at most: image ids of the n-th split begin at n times this."""
USUAL_SIZE = 224
"""Of pictures for backbones whose size is known once they are built."""
Scenes = Annotated[int, Interval(ge=1, le=SPLIT_LIMIT)]


@dataclass(frozen=True)
class ShapesReader:
    """Scenes of coloured shapes with five captions each, the same for the same arguments.

    Scene k of a split depends on `seed`, `max_objects` and k, not on how many scenes are asked for, and what it shows
    not on `size`. No scene of one split is shown in another, and the pairs `HELD_OUT` of colour and shape are shown in
    a share `HELD_OUT_SHARE` of validation and test scenes only (both in `captioning.data.shapes.scene`).

    Attributes:
        root: the folder under which data sets are kept, each in a folder named by a digest of the arguments.
        train: number of training scenes.
        val: number of validation scenes.
        test: number of test scenes.
        max_objects: objects in a scene at most, 1 to 4; each number up to it is as frequent.
        size: side of the pictures in pixels; None: 224, for backbones whose size is known once they are built.
        seed: chooses the scenes.
    """

    root: str | Path
    train: Scenes = 8000
    val: Scenes = 500
    test: Scenes = 500
    max_objects: Annotated[int, Interval(ge=1, le=MAX_OBJECTS)] = MAX_OBJECTS
    size: Annotated[int, Interval(ge=32, le=512)] | None = 112
    seed: Annotated[int, Interval(ge=0, le=2**63 - 1)] = 0

    @property
    def side(self) -> int:
        """Of the pictures in pixels."""
        return USUAL_SIZE if self.size is None else self.size

    @property
    def writes_to(self) -> Path:
        """The folder of this data set; a reader that only reads has no such attribute."""
        digest = hashlib.sha256(json.dumps(self._arguments(), sort_keys=True).encode()).hexdigest()
        return Path(self.root).expanduser() / f"shapes-{digest[:16]}"

    def __call__(self) -> dict[str, list[Example]]:
        """The examples of `train`, `val` and `test`, drawn first where they are not there yet."""
        if not self.writes_to.is_dir():
            self._publish()
        try:
            return {split: read_annotations(self.writes_to / f"captions_{split}.json") for split in SPLITS}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CaptioningError(
                f"The shapes data set in {self.writes_to} cannot be read ({error!r}). Delete that folder: the next run "
                f"draws it again."
            ) from error

    def _arguments(self) -> dict[str, int]:
        numbers = {name: getattr(self, name) for name in (*SPLITS, "max_objects")}
        return {"format": FORMAT, **numbers, "size": self.side, "seed": self.seed}

    def _publish(self) -> None:
        # In a folder of its own, renamed when it is complete, so that nobody ever reads a part.
        partial = self.writes_to.with_name(f".{self.writes_to.name}-{uuid.uuid4().hex}")
        try:
            partial.mkdir(parents=True)
            with counter("Drawing shapes", self.train + self.val + self.test, "scene") as progress:
                for split in SPLITS:
                    self._draw_split(split, partial, progress)
            try:
                partial.rename(self.writes_to)
            except OSError:  # another process was faster: its files are the same, byte for byte
                if not self.writes_to.is_dir():
                    raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _draw_split(self, split: str, folder: Path, progress: Any) -> None:
        (folder / split).mkdir()
        images, captions = [], []
        first = SPLITS.index(split) * SPLIT_LIMIT
        for number in range(getattr(self, split)):
            rng = Random(f"{self.seed}/{split}/{number}")  # Python seeds from a string alike on every machine
            scene = random_scene(rng, split, self.max_objects)
            file_name = f"{split}/{number:06d}.png"
            draw(scene, self.side).save(folder / file_name)
            images.append({"id": first + number, "file_name": file_name, "width": self.side, "height": self.side})
            for position, phrase in enumerate(phrases(scene, rng)):
                caption_id = (first + number) * REFERENCES + position
                captions.append(_caption(caption_id, first + number, phrase, self.side))
            progress.update()
        content = {"info": self._arguments(), "images": images, "annotations": captions}
        (folder / f"captions_{split}.json").write_text(json.dumps(content), encoding="utf-8")


ShapesReader.__init__ = validated(ShapesReader.__init__)  # type: ignore[method-assign]


def _caption(caption_id: int, image_id: int, phrase: Phrase, size: int) -> dict[str, Any]:
    nouns = []
    for word, thing in phrase.nouns:
        left, top, right, bottom = (value * size for value in thing.box)
        nouns.append({"word": word, "bbox": [round(value, 3) for value in (left, top, right - left, bottom - top)]})
    return {"id": caption_id, "image_id": image_id, "caption": phrase.text, "nouns": nouns}


def read_annotations(path: Path) -> list[Example]:
    """Read an annotation file; picture names are relative to its folder."""
    content = json.loads(path.read_text(encoding="utf-8"))
    references: dict[int, list[Reference]] = defaultdict(list)
    sides = {image["id"]: (image["width"], image["height"]) for image in content["images"]}
    for entry in content["annotations"]:
        nouns = tuple(
            Noun(noun["word"], _fractions(noun["bbox"], *sides[entry["image_id"]])) for noun in entry["nouns"]
        )
        references[entry["image_id"]].append(Reference(entry["caption"], tuple(entry["caption"].split()), nouns))
    return [
        Example(image["id"], path.parent / image["file_name"], tuple(references[image["id"]]))
        for image in content["images"]
    ]


def _fractions(bbox: list[float], width: int, height: int) -> tuple[float, float, float, float]:
    left, top, across, down = bbox
    return left / width, top / height, (left + across) / width, (top + down) / height
