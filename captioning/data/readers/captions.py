"""Read captions and references from files, for scoring without a model.

Captions are in COCO's results format, `[{"image_id", "caption"}, ...]`, or in the `captions.jsonl` of a run or an
evaluation, one such object per line. References are in a COCO annotation file, `{"images": [{"id"}, ...],
"annotations": [{"image_id", "caption"}, ...]}`, or in a `captions.jsonl`, whose lines contain a list `references`;
those of a recorded experiment are in a file that all its runs share (`recorded_references`).
Source: Chen et al., "Microsoft COCO Captions: Data Collection and Evaluation Server", 2015.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, TypeAdapter

from captioning.data.readers.coco import Annotation, CocoFile, Image
from captioning.data.readers.reading import Each, ImageId, Text, at, by_image, read_json, read_json_lines
from captioning.errors import CaptioningError, listed
from captioning.files import read_state

REFERENCES = "references"
ADVICE = "bring it back from a copy, or leave its folder out"
RESULTS = 'a list of {"image_id", "caption"}'
ANNOTATIONS = "COCO's annotations; captions.jsonl of a run has references too"
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


@dataclass(slots=True)
class _NamedFile:
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(slots=True)
class _Provenance:
    references: _NamedFile | None = None


@dataclass(slots=True)
class _ScoresFile:
    provenance: _Provenance


_SCORES = TypeAdapter(_ScoresFile)


class _Images(dict[ImageId, RecordedImage]):
    """Those of a split; an absent one is an error that names the file."""

    def __init__(self, file: Path, images: Iterable[RecordedImage]) -> None:
        self.file = file
        super().__init__((image.image_id, image) for image in images)

    def __missing__(self, image_id: ImageId) -> RecordedImage:
        raise CaptioningError(f"{self.file} has no references for the image {image_id!r:.60}")


def read_captions(path: Path) -> dict[ImageId, str]:
    """The caption of each image, in the file's order."""
    results = read_entries(path, Annotation)
    with at(path):
        return by_image((each.image_id, each.caption) for each in results)


def read_entries(path: Path, layout: type[T]) -> list[T]:
    """The entries of a file of captions; `layout` has the fields of an `Annotation` and perhaps more."""
    if path.suffix == ".jsonl":
        return read_json_lines(path, layout)
    return read_json(path, Each[layout], RESULTS)  # type: ignore[valid-type]


def read_references(path: Path, bare: bool = False) -> dict[ImageId, list[str]]:
    """The references of each image, in order; `bare` allows images without references."""
    if path.suffix == ".jsonl":
        lines = read_json_lines(path, _References)
        recorded = recorded_references(path.parent) if any(line.references is None for line in lines) else None
        with at(path):
            references = by_image(
                (line.image_id, recorded[line.image_id].references if recorded else line.references or [])
                for line in lines
            )
    else:
        file = read_json(path, CocoFile[Image], ANNOTATIONS)
        with at(path):
            references = file.captions()
    without = [] if bare else [image_id for image_id, texts in references.items() if not texts]
    if without or not references:
        what = f"references for {len(without)} of {len(references)} images: {_listed(without)}" if without else "images"
        raise CaptioningError(f"{path} has no {what}")
    return references


def recorded_references(folder: Path) -> Mapping[ImageId, RecordedImage] | None:
    """The references of a recorded experiment, which its `scores.json` names; None of other folders.

    Their file, `references/DIGEST.jsonl`, is in a folder above, since all records of a split share it.
    """
    scores = folder / "scores.json"
    named = read_state(scores, _SCORES.validate_json, ADVICE).provenance.references if scores.is_file() else None
    if named is None:
        return None
    name = references_name(named.sha256)
    file = next((found for above in folder.absolute().parents if (found := above / REFERENCES / name).is_file()), None)
    if file is None:
        raise CaptioningError(f"the references of {folder} are in no folder above, as {REFERENCES}/{name}: {ADVICE}")
    return _read_recorded(file, named.sha256)


def references_name(digest: str) -> str:
    """The name of a split's file of references, by the SHA-256 of its content."""
    return f"{digest[:16]}.jsonl"


@lru_cache(maxsize=4)  # all records of a split share it
def _read_recorded(file: Path, digest: str) -> _Images:
    if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
        raise CaptioningError(f"{file} has another content than its name says: {ADVICE}")
    return _Images(file, read_json_lines(file, RecordedImage))


def read_photographs(path: Path) -> dict[ImageId, str]:
    """The file name of each image in a COCO annotation file, where it has one; none of other files."""
    images = [] if path.suffix == ".jsonl" else read_json(path, CocoFile[Image], ANNOTATIONS).images
    return {image.id: image.file_name for image in images if isinstance(image.file_name, str)}


def common_images(
    references: Mapping[ImageId, Collection[str]], files: Mapping[str, Collection[ImageId]], common_only: bool
) -> list[ImageId]:
    """The images to score, in the order of `references`; raise if files differ, unless `common_only`.

    `files` are captions by image, keyed by their names in error messages.
    """
    for name, captions in {} if common_only else files.items():
        missing = [image_id for image_id in references if image_id not in captions]
        extra = [image_id for image_id in captions if image_id not in references]
        if missing or extra:
            absent = f"has no caption for {len(missing)} of {len(references)} images: {_listed(missing)}"
            foreign = f"has {len(extra)} for images without references: {_listed(extra)}"
            problems = "; and ".join([absent] * bool(missing) + [foreign] * bool(extra))
            raise CaptioningError(
                f"{name} {problems}. Scores on a subset of the images are not comparable; "
                "common_only=true scores the images that all files share, and records how many"
            )
    images = [image_id for image_id in references if all(image_id in captions for captions in files.values())]
    if not images:
        raise CaptioningError(
            f"{', '.join(files)} and the references have no image in common; ids of the references: "
            f"{_listed(list(references))}"
        )
    return images


def _listed(ids: Sequence[ImageId]) -> str:
    return listed([f"{each!r:.60}" for each in ids])
