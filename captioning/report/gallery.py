"""The gallery of a page: photographs with captions, references, scores, boxes and attention maps, as plain values."""

import base64
import hashlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

from PIL import Image, ImageOps

from captioning.data.example import Box
from captioning.data.shapes.dataset import read_annotations
from captioning.errors import CaptioningError
from captioning.files import FORMATS, WHOLE, Frame, atomic_write, frame_of
from captioning.metrics.scorer import ATTENTION, HEADLINE, score_called
from captioning.report.maps import ATTENDED, packed
from captioning.report.runs import Caption, ImageId
from captioning.report.systems import System
from captioning.runs.attention_file import FILE, KeptCaption, read

QUALITY = 72
MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Photograph:
    """A scaled JPEG."""

    jpeg: bytes
    width: int
    height: int

    def data_uri(self) -> str:
        """For a page that holds it."""
        return data_uri("image/jpeg", self.jpeg)

    def save(self, folder: Path) -> str:
        """Write it below its digest; its address as seen from the page next to the folder."""
        name = f"{hashlib.sha256(self.jpeg).hexdigest()[:20]}.jpg"
        if not (folder / name).is_file():
            with atomic_write(folder / name) as file:
                file.write(self.jpeg)
        return f"{folder.name}/{name}"


@dataclass(frozen=True, slots=True)
class Described:
    """A photograph of the test split, with the captions of each system's first run by its place in the table."""

    image_id: ImageId
    references: list[str]
    answers: dict[int, Caption] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gallery:
    """Of one table."""

    images: Sequence[Described]
    metrics: Sequence[str]  # scores of single captions, by which the best and the worst are told
    photographs: list[Photograph | None]  # of the images
    boxes: list[Mapping[str, list[Box]]]  # of the images, by word
    maps: list[Any]  # of each system, by the images' places; None where none are kept
    attention: list[str]  # of each system: `kept`, `not kept`, or `none` where it has none

    def each_map(self) -> Iterator[tuple[int, int, Any]]:
        """The places of a system and an image, and the maps; the page reads only those that are looked at."""
        for system, maps in enumerate(self.maps):
            yield from ((system, image, kept) for image, kept in (maps or {}).items())

    @property
    def names(self) -> list[str]:
        """Of all maps, in the order of their files."""
        return list(dict.fromkeys(name for _, _, kept in self.each_map() for name in kept["names"]))

    @property
    def takes_places(self) -> bool:
        """Hard attention has decoded some captions by one place at each word."""
        return any("path" in kept for _, _, kept in self.each_map())

    def for_script(self) -> list[dict[str, Any]]:
        """The images as JSON has them; scores in the order of `metrics`."""
        systems = range(len(self.attention))
        return [
            {
                "id": image.image_id,
                "references": image.references,
                "answers": [self._answer(image, place) for place in systems],
                "size": None if photograph is None else [photograph.width, photograph.height],
                **({"boxes": boxes} if boxes else {}),
            }
            for image, photograph, boxes in zip(self.images, self.photographs, self.boxes, strict=True)
        ]

    def _answer(self, image: Described, place: int) -> dict[str, Any] | None:
        if (line := image.answers.get(place)) is None:
            return None
        scores = [line.scores.get(name) for name in self.metrics]
        return {"caption": line.caption, "scores": [None if s is None else round(s, 2) for s in scores]}

    def worst(self, place: int, number: int = 5) -> list[Described]:
        """The photographs whose captions by one system score least by the first metric."""
        scored = [
            (score, number, image)
            for number, image in enumerate(self.images)
            if place in image.answers and (score := self._first_score(image, place)) is not None
        ]
        return [image for *_, image in sorted(scored, key=lambda each: each[:2])[:number]]

    def _first_score(self, image: Described, place: int) -> float | None:
        return image.answers[place].scores.get(self.metrics[0]) if self.metrics else None


def gather(systems: Sequence[System], photographs: str | None, side: int, heads: int) -> tuple[Gallery, list[str]]:
    """The gallery of a table, and a line on each file that is left out.

    Args:
        systems: of the table.
        photographs: the folder of the photographs; `auto`: that of each run's data; None: the page does without.
        side: pixels of a photograph's longer side.
        heads: the images of each system that show every layer and head; others have the mean alone.
    """
    images, left_out = _described(systems)
    places = [_place(systems, image, photographs) for image in images]
    boxes = noun_boxes([root / name for root, name in filter(None, places)])
    shown = [place and read_photograph(*place, side) for place in places]
    maps, attention = [], []
    for place, system in enumerate(systems):
        run = system.runs[0]
        frames = [frame_of(run.resize, each.width, each.height) if each else WHOLE for each in shown]
        kept: Mapping[Any, KeptCaption] = {}
        try:
            if (run.folder / FILE).exists():
                kept = {caption.image_id: caption for caption in read(run.folder / FILE)}
        except CaptioningError as error:
            left_out.append(f"attention of {system.label}: {error}")
        maps.append(_maps(place, images, frames, kept, heads) or None)
        attends = any(score_called(name).group == ATTENTION for name in run.scores)
        attention.append("kept" if maps[-1] else "not kept" if attends else "none")
    names = {name for image in images for line in image.answers.values() for name in line.scores}
    found = Gallery(
        images=images,
        metrics=sorted(names, key=lambda name: (name != HEADLINE, name)),
        photographs=shown,
        boxes=[boxes.get(place[0] / place[1], {}) if place else {} for place in places],
        maps=maps,
        attention=attention,
    )
    return found, left_out


def _described(systems: Sequence[System]) -> tuple[list[Described], list[str]]:
    """The photographs that the systems were tested on: the same where ids and references are the same."""
    images: dict[tuple[ImageId, tuple[str, ...]], Described] = {}
    left_out = []
    for place, system in enumerate(systems):
        try:
            runs = [run.captions for run in system.runs]
        except CaptioningError as error:
            left_out.append(f"captions of {system.label}: {error}")
            continue
        for line in chain.from_iterable(runs):
            key = line.image_id, tuple(line.references)
            images.setdefault(key, Described(line.image_id, line.references)).answers.setdefault(place, line)
    return list(images.values()), left_out


def _place(systems: Sequence[System], image: Described, photographs: str | None) -> tuple[Path, str] | None:
    """The folder below which a photograph is to be found, and its name there."""
    for place, line in image.answers.items():
        root = systems[place].runs[0].root if photographs == "auto" else photographs
        if line.photograph and root is not None:
            return Path(root).expanduser(), line.photograph
    return None


def _maps(
    place: int,
    images: Sequence[Described],
    frames: Sequence[Frame],
    kept: Mapping[Any, KeptCaption],
    heads: int,
) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for number, (image, frame) in enumerate(zip(images, frames, strict=True)):
        line, caption = image.answers.get(place), kept.get(image.image_id)
        if line is None or caption is None or caption.words != tuple(line.caption.split()) or not caption.words:
            continue  # another test has left these maps
        every = len(found) < heads
        shown = {name: maps for name, maps in caption.maps.items() if every or name in ("mean", ATTENDED)}
        found[number] = packed(shown, frame)
    return found


def noun_boxes(photographs: Sequence[Path]) -> dict[Path, Mapping[str, list[Box]]]:
    """By photograph and word the boxes, in fractions of the photograph, of what the references call by that word.

    The boxes of `FOLDER/test/1.png` lie in `FOLDER/captions_test.json`, as those of drawn scenes; other data have none.
    """
    found: dict[Path, Mapping[str, list[Box]]] = {}
    for file in dict.fromkeys(path.parent.parent / f"captions_{path.parent.name}.json" for path in photographs):
        try:
            examples = read_annotations(file) if file.is_file() else []
        except (OSError, ValueError, KeyError, TypeError, IndexError):  # another program's, or damaged
            continue
        for example in examples:
            words: dict[str, dict[Box, None]] = {}
            for reference in example.references:
                for noun in reference.nouns:
                    words.setdefault(reference.words[noun.word], {})[noun.box] = None
            found[example.path] = {word: list(each) for word, each in words.items()}
    return found


def read_photograph(root: Path, name: str, side: int) -> Photograph | None:
    """The photograph called `name` below `root`, or at the absolute path `name`, its longer side at most `side` pixels.

    None where there is none that can be read, or `name` leads out of `root`: the page does without.
    """
    if ".." in PurePath(name).parts or "\0" in name:
        return None
    try:
        path = root / name
        if not path.is_file():  # opening a pipe would wait for ever
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                image.draft("RGB", (side, side))
                upright = ImageOps.exif_transpose(image).convert("RGB")
        upright.thumbnail((side, side))
    except Exception:  # Pillow's decoders raise nearly every exception there is on a broken file
        return None
    return as_jpeg(upright)


def as_jpeg(image: Image.Image) -> Photograph:
    """An RGB image of the size that it is to have."""
    content = io.BytesIO()
    image.save(content, "JPEG", quality=QUALITY, optimize=True)
    return Photograph(content.getvalue(), *image.size)


def data_uri(kind: str, content: bytes) -> str:
    """A file inside a page."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def addresses(photographs: list[Photograph | None], folder: Path, inside: float) -> list[str | None]:
    """The address of each in the page: itself, if all together have at most `inside` MB, else its file in `folder`."""
    found = [each for each in photographs if each is not None]
    if sum(len(each.jpeg) for each in found) * 4 / 3 <= inside * MEGABYTE:  # base64 has 4 letters for 3 bytes
        return [None if each is None else each.data_uri() for each in photographs]
    folder.mkdir(exist_ok=True)
    return [None if each is None else each.save(folder) for each in photographs]
