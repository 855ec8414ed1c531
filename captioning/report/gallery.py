"""Photographs, captions, scores, boxes and attention maps of a page, as plain values."""

import base64
import io
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePath

import numpy as np
from PIL import Image, ImageOps

from captioning.config.types import MOST_IMAGES, Config, Images, PathText, check_value, given_path
from captioning.data.example import Box
from captioning.data.images import FULL_IMAGE, frame_of, load_image
from captioning.data.readers.captions import CaptionRecord
from captioning.data.readers.parsing import ImageId
from captioning.data.shapes.dataset import read_annotations
from captioning.errors import CaptioningError, quoted
from captioning.files import JOIN, atomic_write, sha256
from captioning.metrics.metric import ATTENTION
from captioning.metrics.table import HEADLINE, score_called
from captioning.report.maps import ATTENDED, Shown, quantise
from captioning.report.systems import System
from captioning.runs.evaluation.attention_file import FILE, read

QUALITY = 72
FIRST = 12  # photographs of a gallery that are there without a script
ROOT = "data.reader.root"  # the setting of a run: the folder of its photographs
MEGABYTE = 1_000_000


@dataclass
class ImageEntry:
    """A test photograph, with captions and maps of systems' first runs, by their indices."""

    image_id: ImageId
    references: list[str]
    answers: dict[int, CaptionRecord] = field(default_factory=dict)
    # of captions with maps, where blanks do not tell
    words: dict[int, Sequence[str]] = field(default_factory=dict)
    maps: dict[int, Shown] = field(default_factory=dict)  # as `quantise`
    boxes: Mapping[str, list[Box]] = field(default_factory=dict)  # by word
    jpeg: bytes = b""
    size: tuple[int, int] | None = None  # of the JPEG; None where the page does without
    address: str | None = None  # of the JPEG, as the page has it

    def for_script(self, systems: int, metrics: Sequence[str], digits: int) -> Shown:
        """As JSON has it; scores in the order of `metrics`, rounded."""
        answers: list[Shown | None] = [None] * systems
        for index, line in self.answers.items():
            rounded = [(s := line.scores.get(name)) and round(s, digits) for name in metrics]
            answers[index] = answer = {"caption": line.caption, "scores": rounded}
            if index in self.words:
                answer["words"] = self.words[index]
            if line.hallucinated:
                answer["hallucinated"] = line.hallucinated
        shown: Shown = {"id": self.image_id, "references": self.references, "answers": answers}
        shown["size"] = self.size
        if self.boxes:
            shown["boxes"] = self.boxes
        return shown


@dataclass(frozen=True)
class Gallery:
    """Of one table."""

    images: Sequence[ImageEntry]
    metrics: Sequence[str]  # scores of single captions, by which the best and the worst are told
    attention: list[str]  # of each system: `kept`, `not kept`, or `none` where it has none

    def content(self, digits: int = 2) -> Shown:
        """What templates and their script show of it; scores have so many `digits`."""
        systems = len(self.attention)
        images = [image.for_script(systems, self.metrics, digits) for image in self.images]
        pictures = [image.address for image in self.images]
        maps = [kept for image in self.images for kept in image.maps.values()]
        return {
            "gallery": self,
            "pictures": pictures,
            "first": list(zip(images[:FIRST], pictures[:FIRST], strict=True)),
            "map_names": list(dict.fromkeys(name for kept in maps for name in kept["names"])),
            # hard attention, by one at each word
            "takes_places": any("path" in kept for kept in maps),
            "data": {
                "metrics": self.metrics,
                "least": [score_called(name).best == "min" for name in self.metrics],  # is the best
                "images": images,
            },
        }

    @property
    def hallucinated(self) -> list[str]:
        """The objects that captions name and that are not there."""
        lines = (line for image in self.images for line in image.answers.values())
        return sorted({name for line in lines for name in line.hallucinated or ()})


def gather(
    systems: Sequence[System], source: str | None, image_size: int, heads: int
) -> tuple[Gallery, list[str]]:
    """The gallery of a table, and a line on each file that is left out.

    `source` is their folder, `auto` that of each run's data, None does without; their longer
    side has `image_size` pixels; `heads` images of each system show every layer and head, others
    the mean alone.
    """
    images, left_out = _described(systems)
    recorded = [system.runs[0].recorded for system in systems]
    paths, refused = lay_images(images, recorded, source, image_size)
    left_out += refused
    boxes = noun_boxes(list(paths.values()))
    for number, path in paths.items():
        images[number].boxes = boxes.get(path, {})
    attention = []
    for index, system in enumerate(systems):
        try:
            kept = _lay_maps(images, index, system, heads)
        except CaptioningError as error:
            kept = False
            left_out.append(f"attention of {system.full_label}: {error}")
        attends = any(score_called(name).group == ATTENTION for name in system.runs[0].scores)
        attention.append("kept" if kept else "not kept" if attends else "none")
    names = {name for image in images for line in image.answers.values() for name in line.scores}
    metrics = sorted(names, key=lambda name: (name != HEADLINE, name))
    return Gallery(images, metrics, attention), left_out


def lay_images(
    images: Sequence[ImageEntry],
    recorded: Sequence[Config],  # the settings of each system's run
    source: str | None,
    image_size: int,
) -> tuple[dict[int, Path], list[str]]:
    """Read photographs, see `gather`; return their (first) files by place, and what is left out."""
    paths, left_out = dict[int, Path](), list[str]()
    for index, settings in enumerate(recorded):
        root = settings.get(ROOT) if source == "auto" else source
        least = settings.get("backbone.images", 1)
        try:  # a stranger may have written them
            check_value(ROOT, root, PathText | None)
            check_value("backbone.images", least, Images)
        except CaptioningError as error:
            left_out.append(f"images of {quoted(settings.get('folder'))}: {error}")
            continue
        folder = given_path(root or "")
        # not `Path.is_dir`, which raises for some names
        if not root or not os.path.isdir(folder):  # noqa: PTH112
            continue
        for number, image in enumerate(images):
            line = image.answers.get(index)
            if image.jpeg or line is None or not line.photograph:
                continue
            name = line.photograph
            # not `Path.exists`, which raises for some names
            names = [name] if os.path.exists(folder / name) else name.split(JOIN)  # noqa: PTH110
            files = [folder / name for name in names]
            paths[number] = files[0]
            outside = any(".." in PurePath(n).parts or PurePath(n).is_absolute() for n in names)
            if not outside and len(files) <= MOST_IMAGES:
                resize, count = quoted(settings.get("backbone.of.resize")), max(len(files), least)
                image.jpeg, image.size = read_image(files, image_size, count, resize)
    return paths, left_out


def _described(systems: Sequence[System]) -> tuple[list[ImageEntry], list[str]]:
    """Collect the tested photographs; equal ids and references mean the same photograph."""
    images: dict[tuple[ImageId, tuple[str, ...]], ImageEntry] = {}
    left_out = []
    for index, system in enumerate(systems):
        try:
            runs = [run.captions for run in system.runs]
        except CaptioningError as error:
            left_out.append(f"captions of {system.full_label}: {error}")
            continue
        for line in chain.from_iterable(runs):
            key = line.image_id, tuple(line.references)
            entry = images.setdefault(key, ImageEntry(line.image_id, line.references))
            entry.answers.setdefault(index, line)
    return list(images.values()), left_out


def _lay_maps(images: Sequence[ImageEntry], index: int, system: System, heads: int) -> bool:
    """Add a first run's attention maps of the same captions; return False without any."""
    run, laid = system.runs[0], 0
    file = run.folder / FILE
    kept = {record.image_id: record for record in read(file)} if file.exists() else {}
    for image in images:
        line, caption = image.answers.get(index), kept.get(image.image_id)
        if line is None or caption is None or not caption.words:
            continue
        by_blanks = line.caption.split()
        if "".join(caption.words).replace(" ", "") != "".join(by_blanks):
            continue  # another test has left these maps
        if [*caption.words] != by_blanks:
            image.words[index] = caption.words
        shown = {
            name: maps
            for name, maps in caption.maps.items()
            if laid < heads or name in ("mean", ATTENDED)
        }
        resize = run.recorded.get("backbone.resize") or "stretch"
        frame = frame_of(resize, *image.size) if image.size else FULL_IMAGE
        image.maps[index] = quantise(shown, frame, caption.labels)
        laid += 1
    return laid > 0


def noun_boxes(paths: Sequence[Path]) -> Mapping[Path, Mapping[str, list[Box]]]:
    """Read boxes of named objects by photograph and word, in fractions of the photograph.

    The boxes of `FOLDER/test/1.png` lie in `FOLDER/captions_test.json`, as those of drawn scenes;
    other data have none.
    """
    by_image = {}
    folders = dict.fromkeys(path.parent for path in paths)
    for file in (folder.parent / f"captions_{folder.name}.json" for folder in folders):
        try:
            examples = read_annotations(file) if file.is_file() else []
        except CaptioningError:  # another program's file, or a damaged one
            continue
        for example in examples:
            words: dict[str, dict[Box, None]] = {}
            for reference in example.references:
                for noun in reference.nouns:
                    words.setdefault(reference.words[noun.word], {})[noun.box] = None
            by_image[example.path] = {word: list(boxes) for word, boxes in words.items()}
    return by_image


def read_image(
    paths: Sequence[Path], image_size: int, count: int = 1, resize: str = "stretch"
) -> tuple[bytes, tuple[int, int] | None]:
    """Read a photograph as JPEG, and its size; None if unreadable.

    Its longer side has at most `image_size` pixels. Of examples of `count` images, the squares side
    by side, as networks see them.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            pictures = [_read_upright(path, image_size) for path in paths]
    except Exception:  # Pillow's decoders raise nearly every exception there is on a broken file
        return b"", None
    shown, side = pictures[0], max(1, image_size // count)
    if count == 1:
        shown.thumbnail((image_size, image_size))
    else:
        square = {"crop": ImageOps.fit, "pad": ImageOps.pad}.get(resize, Image.Image.resize)
        shown = Image.new("RGB", (count * side, side))
        for number, picture in enumerate(pictures):
            shown.paste(square(picture, (side, side)), (number * side, 0))
    return as_jpeg(shown), shown.size


def _read_upright(path: Path, image_size: int) -> Image.Image:
    with load_image(path, image_size) as upright:
        if upright.mode.startswith("I"):  # 16 bits, shown up to the largest of its values
            grey = np.asarray(upright, np.float32)
            upright = Image.fromarray((grey * (255 / max(grey.max(), 1))).clip(0).astype(np.uint8))
        return upright.convert("RGB")


def as_jpeg(image: Image.Image) -> bytes:
    """An RGB image of the size that it is to have."""
    content = io.BytesIO()
    image.save(content, "JPEG", quality=QUALITY, optimize=True)
    return content.getvalue()


def data_uri(kind: str, content: bytes) -> str:
    """A file inside a page."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def address(images: Sequence[ImageEntry], folder: Path, embed_mb: float) -> None:
    """Give photographs addresses: themselves up to `embed_mb` MB in all, else in `folder`."""
    readable = [image for image in images if image.jpeg]
    # base64 has 4 letters for 3 bytes
    within = sum(len(image.jpeg) for image in readable) * 4 / 3 <= embed_mb * MEGABYTE
    for image in readable:
        if within:
            image.address = data_uri("image/jpeg", image.jpeg)
            continue
        file = folder / f"{sha256(image.jpeg)[:20]}.jpg"
        folder.mkdir(exist_ok=True)
        if not file.is_file():
            with atomic_write(file) as written:
                written.write(image.jpeg)
        image.address = f"{folder.name}/{file.name}"
