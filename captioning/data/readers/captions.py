"""Read captions and references from files, for scoring without a model.

Captions are in COCO's results format, `[{"image_id", "caption"}, ...]`, or in the `captions.jsonl`
of a run or an evaluation, one such object per line. References are in a COCO annotation file,
`{"images": [{"id"}, ...], "annotations": [{"image_id", "caption"}, ...]}`, or in a
`captions.jsonl`, whose lines contain a list `references`; those of a recorded experiment are in a
file that all its runs share (`recorded_references`). Source: Chen et al., "Microsoft COCO Captions:
Data Collection and Evaluation Server", 2015.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PureWindowsPath
from typing import Annotated

from annotated_types import MinLen
from pydantic import AliasPath, BaseModel, Field
from pydantic_core import from_json

from captioning.data.example import Example, reference_texts
from captioning.data.readers.coco import CocoFile, CocoImage
from captioning.data.readers.groups import Group, add_groups
from captioning.data.readers.ids import by_image, listed_ids
from captioning.data.readers.karpathy import NAME as KARPATHY
from captioning.data.readers.karpathy import KarpathyFile
from captioning.data.readers.parsing import (
    ImageId,
    Text,
    at,
    has_list,
    json_text,
    or_skip,
    parse_json,
    parse_json_lines,
    read_lines,
)
from captioning.data.readers.reading import Entry, FailFastList, make_example
from captioning.data.readers.table import table_entries
from captioning.errors import CaptioningError
from captioning.files import read_gzip, read_state, sha256

REFERENCES = "references"
JSON_LINES = (".jsonl", ".jsonl.gz")
HINT = "bring it back from a copy, or leave its folder out"
RESULTS = 'a list of {"image_id", "caption"}'
IDS = 'an object of lists, {"IMAGE": ["CAPTION", ..]}'
BY_ID = dict[str, Annotated[list[Text], MinLen(1)]]
ANNOTATIONS = "COCO's annotations; captions.jsonl of a run has references too"
NUMBER = re.compile(r"(?<!\d)0*(\d{1,18})\.\w+$")  # COCO_val2014_000000000042.jpg


class CaptionRecord(BaseModel):
    """The caption of an image: a line of `captions.jsonl`, or an entry of COCO's results."""

    image_id: ImageId
    caption: Text
    # further captions of a search that gives several, best first
    alternatives: list[Text] = Field(default_factory=list)  # a default would be copied, slowly
    # where it has none of its own, they are in the split's file
    references: list[Text] = Field(default_factory=list)
    photograph: Text | None = None  # the path of its file below the folder of the data
    group: Group = ""
    scores: dict[str, float | None] = Field(default_factory=dict)
    # objects that it names and that are not there, if that was judged
    hallucinated: list[Text] | None = None

    @property
    def captions(self) -> list[str]:
        """All captions of the image, the first is the one that metrics of single captions score."""
        return [self.caption, *self.alternatives]


class ReferenceRecord(BaseModel):
    """The references of an image: of a data set, a `captions.jsonl`, or a recorded split."""

    image_id: ImageId
    references: list[Text] = []
    photograph: Text | None = None
    group: Group = ""


class _Scores(BaseModel):
    """Of `scores.json`, the digest of the file of references that it names."""

    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        None, validation_alias=AliasPath("provenance", "references", "sha256")
    )


def read_captions(path: Path) -> dict[ImageId, CaptionRecord]:
    """The caption of each image, in the file's order, from a table, JSON or JSON lines."""
    if path.name.endswith(JSON_LINES):
        records = list(parse_json_lines(read_lines(path), CaptionRecord))
    elif path.suffix == ".json":
        with at(f"{path}, read as {RESULTS}, or {IDS}"):
            text = json_text(path)
            if text.lstrip().startswith("{"):
                records = [
                    CaptionRecord(image_id=image, caption=first, alternatives=others)
                    for image, (first, *others) in parse_json(text, BY_ID).items()
                ]
            else:
                records = parse_json(text, FailFastList[CaptionRecord])
    else:
        records = [
            CaptionRecord(image_id=image, caption=text)
            for image, entry in table_entries(path).items()
            for text in entry.captions
        ]
    with at(path):
        return by_image((record.image_id, record) for record in records)


def read_references(
    path: Path, bare: bool = False, captions: Collection[ImageId] = (), marked: bool = False
) -> dict[ImageId, ReferenceRecord]:
    """The references of each image, in order; `bare` allows images without references.

    Layouts are COCO's (see its `captions` for `marked` ones), Karpathy's, those of tables,
    `{"IMAGE": ["CAPTION", ..]}` and `captions.jsonl`. The images are called as
    in `captions` if those ids are file names, text instead of numbers, with other zeros in front,
    or the numbers at the end of file names.
    """
    # metadata.jsonl is a table: its images are files
    lines = read_lines(path) if path.name.endswith(JSON_LINES) else []
    if lines and '"file_name"' not in lines[0][1]:
        records = list(parse_json_lines(lines, ReferenceRecord))
        add_groups(records, lambda: (from_json(line) for _, line in lines))
        add_references(records, path.parent)
    else:
        records = [
            ReferenceRecord(image_id=image, references=texts, photograph=file or None, group=group)
            for image, file, texts, group in _entries(_read_data_set(path), path, marked)
        ]
    key = _shared_key(records, captions)
    pairs = ((key(record.image_id, record.photograph or ""), record) for record in records)
    with at(path):
        references = by_image(pairs)
    if not references:
        raise CaptioningError(f"{path} has no images")
    without = [image for image, record in references.items() if not record.references]
    if without and not bare:
        raise CaptioningError(
            f"{path} has no references for {len(without)} of {len(references)} images: "
            f"{listed_ids(without)}"
        )
    return references


def read_examples(folder: Path, path: Path) -> list[Example]:
    """All examples of a data set's file in any layout; a photograph is `folder/file`."""
    file = _read_data_set(path)
    if isinstance(file, KarpathyFile):
        with at(path):
            return [image.example(folder) for image in file.images]
    examples = []
    for image, name, texts, group in _entries(file, path):
        with or_skip(), at(path):
            if not name:
                raise CaptioningError(f"the image {image!r:.60} has no file_name")
            examples.append(make_example(image, (folder / name,), texts, group=group))
    return examples


DataSetFile = KarpathyFile | CocoFile[CocoImage] | Mapping[str, Entry]


def _read_data_set(path: Path) -> DataSetFile:
    """Read a file: JSON in COCO's or Karpathy's layout or captions by image, else a table."""
    if path.suffix.lower() != ".json":
        return table_entries(path)
    with at(path):
        text = json_text(path)
    if text.lstrip().startswith("["):
        return table_entries(path)
    if has_list(text, "annotations"):
        with at(f"{path}, read as {ANNOTATIONS}"):
            return parse_json(text, CocoFile[CocoImage])
    if has_list(text, "images"):
        with at(f"{path}, read as {KARPATHY}"):
            return parse_json(text, KarpathyFile)
    with at(f"{path}, read as {IDS}"):
        return {name: Entry(texts, "") for name, texts in parse_json(text, BY_ID).items()}


def _entries(
    file: DataSetFile, path: Path, marked: bool = False
) -> list[tuple[ImageId, str, list[str], str]]:
    """The id, the file name, the captions and the group of each image."""
    with at(path):
        if isinstance(file, CocoFile):
            images = {image.id: image for image in file.images}
            return [
                (key, str(images[key].file_name or ""), texts, images[key].group)
                for key, texts in file.captions(marked).items()
            ]
        if isinstance(file, KarpathyFile):
            examples = [image.example(Path()) for image in file.images]
            return [
                (e.image_id, str(e.path), texts, e.group)
                for e, texts in zip(examples, reference_texts(examples), strict=True)
            ]
        return [(name, name, entry.captions, entry.group) for name, entry in file.items()]


def _shared_key(
    records: Sequence[ReferenceRecord], captions: Collection[ImageId]
) -> Callable[[ImageId, str], ImageId]:
    """The way to call images by which most of `captions` have references; the file's own, if two
    are as good.
    """
    by_number = {str(image_id).lstrip("0"): image_id for image_id in captions}  # of "001" and 1
    keys = [
        lambda image_id, file: image_id,
        lambda image_id, file: file,
        lambda image_id, file: PureWindowsPath(file).name,  # which reads slashes too
        lambda image_id, file: by_number.get(str(image_id).lstrip("0"), image_id),
        lambda image_id, file: by_number.get("".join(NUMBER.findall(file)).lstrip("0"), image_id),
    ]
    known = set(captions)
    return max(
        keys, key=lambda key: len(known & {key(r.image_id, r.photograph or "") for r in records})
    )


def add_references(records: Sequence[CaptionRecord | ReferenceRecord], folder: Path) -> None:
    """Add the references, names of photographs and groups that a recorded experiment leaves out.

    Raises:
        CaptioningError: the split's file of references is absent or another one, or lacks an image.
    """
    bare = [record for record in records if "references" not in record.model_fields_set]
    images = recorded_references(folder) if bare else None
    if images is None:
        return
    for record in bare:
        if (image := images.get(record.image_id)) is None:
            raise CaptioningError(
                f"the references of {folder} have none for the image {record.image_id!r:.60}"
            )
        record.references = image.references
        record.photograph = record.photograph or image.photograph
        record.group = record.group or image.group


def recorded_references(folder: Path) -> Mapping[ImageId, ReferenceRecord] | None:
    """The references of a recorded experiment, named by `scores.json`.

    None of other folders.

    Their file, `references/DIGEST.jsonl.gz`, is in a folder above: all records of a split share it.
    """
    scores = folder / "scores.json"
    if not scores.is_file():
        return None
    digest = read_state(scores, _Scores.model_validate_json, HINT).digest
    if digest is None:
        return None
    name = references_name(digest)
    for above in folder.absolute().parents:
        if (file := above / REFERENCES / name).is_file():
            return _read_recorded(file, digest)
    raise CaptioningError(
        f"the references of {folder} are in no folder above, as {REFERENCES}/{name}: {HINT}"
    )


def references_name(digest: str) -> str:
    """The name of a split's file of references, by the SHA-256 of what is compressed in it."""
    return f"{digest[:16]}.jsonl.gz"


@lru_cache(maxsize=4)  # all records of a split share it
def _read_recorded(file: Path, digest: str) -> dict[ImageId, ReferenceRecord]:
    if sha256(read_gzip(file)) != digest:
        raise CaptioningError(f"{file} has another content than its name says: {HINT}")
    records = parse_json_lines(read_lines(file), ReferenceRecord)
    return {record.image_id: record for record in records}
