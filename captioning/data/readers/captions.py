"""Read captions and references from files, for scoring without a model.

Captions are in COCO's results format, `[{"image_id", "caption"}, ...]`, or in the `captions.jsonl`
of a run or an evaluation, one such object per line. References are in a COCO annotation file,
`{"images": [{"id"}, ...], "annotations": [{"image_id", "caption"}, ...]}`, or in a
`captions.jsonl`, whose lines contain a list `references`; those of a recorded experiment are in a
file that all its runs share (`recorded_references`). Source: Chen et al., "Microsoft COCO Captions:
Data Collection and Evaluation Server", 2015.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AliasPath, BaseModel, Field

from captioning.data.readers.coco import Annotation, CocoFile, Image
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.reading import (
    FailFastList,
    ImageId,
    Text,
    by_image,
    has_list,
    json_text,
    read_json,
    read_json_lines,
    read_lines,
)
from captioning.data.readers.skipping import at
from captioning.data.readers.table import table_captions
from captioning.errors import CaptioningError, listed
from captioning.files import read_bytes, read_state

REFERENCES = "references"
HINT = "bring it back from a copy, or leave its folder out"
RESULTS = 'a list of {"image_id", "caption"}'
ANNOTATIONS = "COCO's annotations; captions.jsonl of a run has references too"
NUMBER = re.compile(r"0*(\d+)\.\w+$")  # COCO_val2014_000000000042.jpg
T = TypeVar("T")


@dataclass(slots=True)
class _References:
    image_id: ImageId
    references: list[Text] | None = None


@dataclass(slots=True)
class RecordedImage:
    """One line of a split's file of references, `references/DIGEST.jsonl`."""

    image_id: ImageId
    references: list[Text]
    photograph: Text | None = None


class _Scores(BaseModel):
    """Of `scores.json`, the digest of the file of references that it names."""

    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        None, validation_alias=AliasPath("provenance", "references", "sha256")
    )


class _Images(dict[ImageId, RecordedImage]):
    """Those of a split; an absent one is an error that names the file."""

    def __init__(self, file: Path, images: Iterable[RecordedImage]) -> None:
        self.file = file
        super().__init__((image.image_id, image) for image in images)

    def __missing__(self, image_id: ImageId) -> RecordedImage:
        raise CaptioningError(f"{self.file} has no references for the image {image_id!r:.60}")


class Layout(Enum):
    """The layouts of files of captions."""

    COCO = "COCO's"
    KARPATHY = "Karpathy's"
    TABLE = "a table's"


def layout_of(path: Path) -> Layout:
    """The layout of a file: JSON in COCO's or Karpathy's, otherwise a table."""
    if path.suffix.lower() != ".json":
        return Layout.TABLE
    text = json_text(path)
    if text.lstrip().startswith("["):
        return Layout.TABLE
    return Layout.COCO if has_list(text, "annotations") else Layout.KARPATHY


def read_captions(path: Path) -> dict[ImageId, str]:
    """The caption of each image, in the file's order."""
    if path.suffix not in (".json", ".jsonl"):
        texts = table_captions(path)
        with at(path):
            return by_image((image, text) for image, captions in texts.items() for text in captions)
    results = read_entries(path, Annotation)
    with at(path):
        return by_image((each.image_id, each.caption) for each in results)


def read_entries(path: Path, layout: type[T]) -> list[T]:
    """The entries of a file of captions; `layout` has the fields of an `Annotation` and perhaps
    more.
    """
    if path.suffix == ".jsonl":
        return read_json_lines(path, layout)
    return read_json(path, FailFastList[layout], RESULTS)  # type: ignore[valid-type]


def read_references(
    path: Path, bare: bool = False, captions: Collection[ImageId] = ()
) -> dict[ImageId, list[str]]:
    """The references of each image, in order; `bare` allows images without references.

    Layouts are COCO's, Karpathy's, and those of tables. The images are called as in `captions` if
    those ids are file names, text instead of numbers, with other zeros in front, or the numbers at
    the end of file names.
    """
    # metadata.jsonl is a table: its images are files
    if path.suffix == ".jsonl" and not any(
        '"file_name"' in line for _, line in read_lines(path)[:1]
    ):
        lines = read_json_lines(path, _References)
        recorded = (
            recorded_references(path.parent)
            if any(line.references is None for line in lines)
            else None
        )
        with at(path):
            entries = [
                (
                    line.image_id,
                    "",
                    recorded[line.image_id].references if recorded else line.references or [],
                )
                for line in lines
            ]
    else:
        entries = _entries(path)
    key = _shared_key(entries, captions)
    with at(path):
        references = by_image((key(image_id, file), texts) for image_id, file, texts in entries)
    without = [] if bare else [image_id for image_id, texts in references.items() if not texts]
    if without or not references:
        what = (
            f"references for {len(without)} of {len(references)} images: {_listed(without)}"
            if without
            else "images"
        )
        raise CaptioningError(f"{path} has no {what}")
    return references


def _entries(path: Path) -> list[tuple[ImageId, str, list[str]]]:
    """The id, the file name and the captions of each image of a file in any layout."""
    layout = layout_of(path)
    if layout is Layout.COCO:
        file = read_json(path, CocoFile[Image], ANNOTATIONS)
        names = {image.id: image.file_name for image in file.images}
        with at(path):
            return [(key, str(names[key] or ""), texts) for key, texts in file.captions().items()]
    if layout is Layout.KARPATHY:
        examples = KarpathyReader("", path).examples()
        return [(e.image_id, e.path.name, [r.text for r in e.references]) for e in examples]
    return [(name, name, texts) for name, texts in table_captions(path).items()]


def _shared_key(
    entries: Sequence[tuple[ImageId, str, list[str]]], captions: Collection[ImageId]
) -> Callable[[ImageId, str], ImageId]:
    """The way to call images under which most of `captions` have references, by preference the
    file's own.
    """
    by_number = {str(image_id).lstrip("0"): image_id for image_id in captions}  # of "001" and 1
    keys: list[Callable[[ImageId, str], ImageId]] = [
        lambda image_id, file: image_id,
        lambda image_id, file: file,
        lambda image_id, file: Path(file).name,
        lambda image_id, file: by_number.get(str(image_id).lstrip("0"), image_id),
        lambda image_id, file: by_number.get("".join(NUMBER.findall(file)).lstrip("0"), image_id),
    ]
    known = set(captions)
    return max(
        keys, key=lambda key: len(known & {key(image_id, file) for image_id, file, _ in entries})
    )


def recorded_references(folder: Path) -> Mapping[ImageId, RecordedImage] | None:
    """The references of a recorded experiment, which its `scores.json` names; None of other
    folders.

    Their file, `references/DIGEST.jsonl`, is in a folder above, since all records of a split share
    it.
    """
    scores = folder / "scores.json"
    digest = (
        read_state(scores, _Scores.model_validate_json, HINT).digest if scores.is_file() else ""
    )
    if not digest:
        return None
    name = references_name(digest)
    for above in folder.absolute().parents:
        if (file := above / REFERENCES / name).is_file():
            return _read_recorded(file, digest)
    raise CaptioningError(
        f"the references of {folder} are in no folder above, as {REFERENCES}/{name}: {HINT}"
    )


def references_name(digest: str) -> str:
    """The name of a split's file of references, by the SHA-256 of its content."""
    return f"{digest[:16]}.jsonl"


@lru_cache(maxsize=4)  # all records of a split share it
def _read_recorded(file: Path, digest: str) -> _Images:
    if hashlib.sha256(read_bytes(file)).hexdigest() != digest:
        raise CaptioningError(f"{file} has another content than its name says: {HINT}")
    return _Images(file, read_json_lines(file, RecordedImage))


def read_photographs(path: Path) -> dict[ImageId, str]:
    """The file name of each image, where the file has one."""
    entries = [] if path.suffix == ".jsonl" else _entries(path)
    return {image_id: file for image_id, file, _ in entries if file}


def common_images(
    references: Mapping[ImageId, Collection[str]],
    files: Mapping[str, Collection[ImageId]],
    common_only: bool,
) -> list[ImageId]:
    """The images to score, in the order of `references`; raise if files differ, unless
    `common_only`.

    `files` are captions by image, keyed by their names in error messages.
    """
    for name, captions in {} if common_only else files.items():
        missing = [image_id for image_id in references if image_id not in captions]
        extra = [image_id for image_id in captions if image_id not in references]
        if missing or extra:
            absent = (
                f"has no caption for {len(missing)} of {len(references)} images: {_listed(missing)}"
            )
            foreign = f"has {len(extra)} for images without references: {_listed(extra)}"
            problems = "; and ".join([absent] * bool(missing) + [foreign] * bool(extra))
            raise CaptioningError(
                f"{name} {problems}. Scores on a subset of the images are not comparable; "
                "common_only=true scores the images that all files share, and records how many"
            )
    images = [
        image_id
        for image_id in references
        if all(image_id in captions for captions in files.values())
    ]
    if not images:
        raise CaptioningError(
            f"{', '.join(files)} and the references have no image in common; ids of the "
            "references: "
            f"{_listed(list(references))}"
        )
    return images


def _listed(ids: Sequence[ImageId]) -> str:
    return listed([f"{each!r:.60}" for each in ids])
