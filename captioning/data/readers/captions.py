"""Read captions and references from files, for scoring without a model.

Captions are in COCO's results format, `[{"image_id", "caption"}, ...]`, or in the `captions.jsonl` of a run or an
evaluation, one such object per line. References are in a COCO annotation file, `{"images": [{"id"}, ...],
"annotations": [{"image_id", "caption"}, ...]}`, or in a `captions.jsonl`, whose lines contain a list `references`.
Source: Chen et al., "Microsoft COCO Captions: Data Collection and Evaluation Server", 2015.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from captioning.data.readers.coco import Annotation, CocoFile, Image
from captioning.data.readers.reading import Each, ImageId, Text, at, by_image, read_json, read_json_lines
from captioning.errors import CaptioningError, listed

RESULTS = 'a list of {"image_id", "caption"}'
ANNOTATIONS = "COCO's annotations; captions.jsonl of a run has references too"
T = TypeVar("T")


@dataclass(slots=True)
class _References:
    image_id: ImageId
    references: list[Text]


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
        with at(path):
            references = by_image((line.image_id, line.references) for line in lines)
    else:
        file = read_json(path, CocoFile[Image], ANNOTATIONS)
        with at(path):
            references = file.captions()
    without = [] if bare else [image_id for image_id, texts in references.items() if not texts]
    if without or not references:
        what = f"references for {len(without)} of {len(references)} images: {_listed(without)}" if without else "images"
        raise CaptioningError(f"{path} has no {what}")
    return references


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
