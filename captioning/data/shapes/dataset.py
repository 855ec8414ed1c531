"""The reader of `data=shapes`: draws the data set at its first call, only reads it afterwards."""

import hashlib
import json
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any

from annotated_types import Interval

from captioning.config.types import validated
from captioning.data.example import Example
from captioning.data.shapes.annotations import caption_entry, image_entry, read_annotations, write_annotations
from captioning.data.shapes.drawing import draw
from captioning.data.shapes.phrasing import REFERENCES, phrases
from captioning.data.shapes.scene import MAX_OBJECTS, SPLITS, random_scene
from captioning.errors import CaptioningError
from captioning.progress import counter

FORMAT = 1
"""To be raised with every change of what is drawn or written: older folders are then no longer read."""
SPLIT_LIMIT = 1_000_000
"""Scenes of a split at most: image ids of the n-th split begin at n times this."""
USUAL_SIZE = 224
"""Of pictures whose size nobody says."""
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
        """Of the pictures, in pixels."""
        return USUAL_SIZE if self.size is None else self.size

    @property
    def writes_to(self) -> Path:
        """Where this data set is kept; a reader that only reads has no such attribute."""
        digest = hashlib.sha256(json.dumps(self._arguments(), sort_keys=True).encode()).hexdigest()
        return Path(self.root).expanduser() / f"shapes-{digest[:16]}"

    def __call__(self) -> dict[str, list[Example]]:
        """Returns the examples of `train`, `val` and `test`, drawn first where they are not there yet.

        Raises:
            CaptioningError: the data set cannot be written, or what is there has been damaged.
        """
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
        """Draws into a folder of its own and renames it when it is whole, so that nobody ever reads a part."""
        partial = self.writes_to.with_name(f".{self.writes_to.name}-{uuid.uuid4().hex}")
        try:
            partial.mkdir(parents=True)
            with counter("Drawing shapes", self.train + self.val + self.test, "scene") as progress:
                for split in SPLITS:
                    self._draw_split(split, partial, progress)
            try:
                partial.rename(self.writes_to)
            except OSError:
                # Another process was faster: what it published is the same, byte for byte.
                if not self.writes_to.is_dir():
                    raise
        except OSError as error:
            raise CaptioningError(
                f"The shapes data set cannot be written below {self.root}: {error}. Choose a folder that can be "
                f"written to and has room for about {(self.train + self.val + self.test) // 250 + 1} MB."
            ) from error
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
            images.append(image_entry(first + number, file_name, self.side))
            for position, phrase in enumerate(phrases(scene, rng)):
                caption_id = (first + number) * REFERENCES + position
                captions.append(caption_entry(caption_id, first + number, phrase, self.side))
            progress.update()
        write_annotations(folder / f"captions_{split}.json", self._arguments(), images, captions)


ShapesReader.__init__ = validated(ShapesReader.__init__)  # type: ignore[method-assign]
