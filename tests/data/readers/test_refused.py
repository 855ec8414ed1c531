"""Files that are refused: `(reader, content, exception, what the message names)`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from captioning.config.explain import explain
from captioning.data.example import Example, Reference
from captioning.data.readers.captions import read_captions, read_references
from captioning.data.readers.coco import CocoReader, CocoSplit
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.splits import SPLITS, check_splits, read
from captioning.data.readers.subset import Subset
from captioning.data.readers.table import TableReader
from captioning.errors import CaptioningError

DOG = {"raw": "A dog.", "tokens": ["a", "dog"]}
KARPATHY = [{"filename": f"{i}.jpg", "split": s, "imgid": i, "sentences": [DOG]} for i, s in enumerate(SPLITS)]
IMAGE = {"id": 1, "file_name": "1.jpg"}
CAPTION = {"image_id": 1, "caption": "A dog."}
RESULT = {"image_id": 1, "caption": "a", "references": ["a"]}
TABLE = "image,caption\n1.jpg,A dog runs .\n"
TOKENS = "1.jpg#0\tA dog runs .\n"
LONG = "x" * 10_001


def karpathy(path: Path) -> object:
    return KarpathyReader(path.parent, path)()


def coco(path: Path) -> object:
    return CocoSplit(path.parent, path)()


def table(path: Path) -> object:
    return TableReader(path.parent, path, {split: [0, 1] for split in SPLITS})()


def chosen(path: Path) -> object:
    return Subset(path).choose([3, 4], Path("captions.json"))


def lines(read: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda path: read(path.rename(path.with_suffix(".jsonl")))


def first(**change: Any) -> dict[str, Any]:
    return {"images": [KARPATHY[0] | change, *KARPATHY[1:]]}


def both(*images: Any, annotations: Any = (CAPTION,)) -> dict[str, Any]:
    return {"images": images, "annotations": annotations}


BROKEN = [
    "",
    "{",
    b'{"a": "caf\xe9"}',
    "[" * 100_000,
    '{"a":' * 100_000,
    "null",
    "[3]",
    '{"images": {}}',
    '{"images": [3]}',
]
REFUSED: list[tuple[Callable[[Path], object], Any, type[Exception], str]] = [
    *((read, content, ValueError, "read as") for read in (karpathy, coco, read_references) for content in BROKEN),
    *((lines(read), "{\n", ValidationError, ", line 1") for read in (read_captions, read_references)),
    (karpathy, {"images": []}, CaptioningError, "no images for train, val, test"),
    (karpathy, both(IMAGE), ValidationError, "Karpathy's layout"),
    (karpathy, first(split="dev"), ValidationError, "images[0].split"),
    (karpathy, first(split="val"), CaptioningError, "no images for train"),
    *(
        (karpathy, first(filename=n), ValidationError, "images[0].filename")
        for n in ("../1", "/1", "", "a\0", LONG, None)
    ),
    (karpathy, first(filename=".", filepath="a"), ValidationError, "images[0].filename"),
    *((karpathy, first(filepath=name), ValidationError, "images[0].filepath") for name in ("../1", "/1", "a\0", 3)),
    *((karpathy, first(imgid=each), ValidationError, "images[0].imgid") for each in (True, 1.5, [1], LONG)),
    *((karpathy, first(sentences=each), CaptioningError, "0.jpg") for each in ([], [{"raw": "..."}], [{"tokens": []}])),
    (karpathy, first(sentences=[DOG, {"text": "a dog"}]), CaptioningError, "images[0]"),
    *((karpathy, first(sentences=[{"raw": t}]), ValidationError, "images[0].sentences[0].raw") for t in (3, LONG)),
    (karpathy, first(sentences=[{"tokens": "a dog"}]), ValidationError, "images[0].sentences[0].tokens"),
    (karpathy, first(sentences=[{"tokens": ["a", 2]}]), ValidationError, "images[0].sentences[0].tokens[1]"),
    (karpathy, first(sentences=[{"tokens": ["a"] * 9000}]), ValidationError, "images[0].sentences[0].tokens"),
    (karpathy, first(sentences=[{"tokens": ["abc"] * 4000}]), CaptioningError, "images[0]"),
    (karpathy, first(sentences=[{"raw": "A dog \ud83d"}]), ValidationError, "read as"),
    (coco, {"images": [{"filename": "1.jpg", "sentences": []}]}, ValidationError, "annotations"),
    (coco, [RESULT], ValidationError, "COCO"),
    (coco, both(IMAGE, {"id": 2, "file_name": "2.jpg"}, IMAGE), CaptioningError, "images[2]"),
    (coco, both(IMAGE, annotations=[CAPTION, CAPTION | {"image_id": 8}]), CaptioningError, "annotations[1]"),
    (coco, both(IMAGE, annotations=[CAPTION | {"image_id": "1"}]), CaptioningError, "annotations[0]"),
    (coco, both(IMAGE, annotations=[]), CaptioningError, "1.jpg has no caption"),
    (coco, both(IMAGE, annotations=[CAPTION, {"image_id": 1}]), ValidationError, "annotations[1].caption"),
    *((coco, both(IMAGE | {"id": each}), ValidationError, "images[0].id") for each in (None, [1], 1.5, False)),
    *((coco, both(IMAGE | {"file_name": n}), ValidationError, "images[0].file_name") for n in ("../1.jpg", "", None)),
    (table, "", CaptioningError, "file.json: '' does not name the columns"),
    *(
        (table, h, CaptioningError, "line 1")
        for h in ("image;caption\n1.jpg;A dog", "1.jpg,A dog", "image,caption,caption")
    ),
    *(
        (table, TABLE + line, CaptioningError, "line 3")
        for line in ("1.jpg", "1.jpg,A, b", '1.jpg,"A\n1.jpg,B', '1,"A" b')
    ),
    (table, TABLE + "1.jpg," + LONG * 20, CaptioningError, "line 3"),
    *((table, TABLE + line, ValidationError, "line 3") for line in ("1.jpg," + LONG, "../1.jpg,A dog", ",A dog")),
    (table, b"image,caption\n1.jpg,A caf\xe9\n", UnicodeDecodeError, "line 2 is not UTF-8"),
    (table, TABLE.encode("utf-16"), UnicodeDecodeError, "line 1 is not UTF-8"),  # a spreadsheet's "Unicode text"
    *((table, TOKENS + line, CaptioningError, "line 2") for line in ("1.jpg\tA dog", "1.jpg#2 A dog")),
    (table, TABLE + "2.jpg,...", CaptioningError, "2.jpg has no caption"),
    (table, TABLE, CaptioningError, "1.jpg occurs twice"),
    (chosen, "3\n\n8\n", CaptioningError, "line 3: 8"),
    *((read_captions, each, ValidationError, "read as") for each in ("[{", "null", both(), "[" * 100_000)),
    *((read_captions, [RESULT | {"caption": c}], ValidationError, "[0].caption") for c in (None, 3, LONG)),
    *((read_captions, [RESULT | {"image_id": i}], ValidationError, "[0].image_id") for i in (1.5, True, [1], None)),
    (read_captions, [RESULT, 5], ValidationError, "[1]"),
    (read_captions, [{"image_id": 1, "text": "a"}], ValidationError, "[0].caption"),
    (read_captions, [RESULT] * 2, CaptioningError, "[1]: the image 1"),
    (lines(read_captions), json.dumps(RESULT) + '\n{"image_id": 1}', ValidationError, "line 2: caption"),
    (lines(read_captions), f"{json.dumps(RESULT)}\n" * 2, CaptioningError, "line 2: the image 1"),
    (read_references, [RESULT], ValidationError, "read as"),
    (read_references, {"images": [{"sentences": []}]}, ValidationError, "annotations"),
    (read_references, both(annotations=[]), CaptioningError, "no images"),
    (read_references, both({"file_name": "x"}), ValidationError, "images[0].id"),
    (read_references, both(IMAGE, IMAGE), CaptioningError, "images[1]"),
    (read_references, both(IMAGE, {"id": 9}), CaptioningError, "references for 1 of 2 images: 9"),
    (lines(read_references), {"image_id": 1, "caption": "a"}, ValidationError, "line 1: references"),
    (lines(read_references), {"image_id": 1, "references": ["a", 2]}, ValidationError, "references[1]"),
    (lines(read_references), {"image_id": 1, "references": []}, CaptioningError, "1 of 1 images: 1"),
]


@pytest.mark.parametrize(("read", "content", "kind", "named"), REFUSED)
def test_a_wrong_file_is_refused_with_the_place(
    tmp_path: Path, read: Callable[[Path], object], content: Any, kind: type[Exception], named: str
) -> None:
    path = tmp_path / "file.json"
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(kind) as refused:
        read(path)
    message = explain(refused.value)
    assert named in message
    assert len(message.replace(str(tmp_path), "").encode()) < 1000


@pytest.mark.parametrize(
    "read", [karpathy, coco, table, chosen, read_captions, lambda path: read_captions(path / "a.jsonl")]
)
def test_files_that_are_not_there_are_named(tmp_path: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(FileNotFoundError) as refused:
        read(tmp_path / "file")
    assert str(tmp_path / "file") in explain(refused.value)
    with pytest.raises(IsADirectoryError):
        karpathy(tmp_path)


def test_what_must_be_set_for_a_data_set_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as refused:
        read(KarpathyReader(tmp_path, tmp_path / "file"))
    assert "data.root" in explain(refused.value)


@pytest.mark.parametrize(
    ("build", "key", "value"),
    [
        *((Subset, "value", each) for each in (None, 0.5, [], [0.5], [0, 0.5, 1], [0, None], ["a", "b"])),
        *((Subset, "value", each) for each in ([0.5, 0.5], [1, 0], [-0.1, 1], [0, 8])),
        *(
            (lambda splits: TableReader("a", "b", splits=splits), "splits", dict.fromkeys(k, "c"))
            for k in (SPLITS[:2], "abc")
        ),
        (lambda splits: TableReader("a", "b", splits=splits), "splits", dict.fromkeys([*SPLITS, "dev"], "c")),
        (CocoReader, "splits", dict.fromkeys(SPLITS, "c")),
        (lambda restval: KarpathyReader("a", "b", restval=restval), "restval", "all"),
    ],
)
def test_wrong_settings_are_named(build: Callable[..., Any], key: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        build(**{key: value})
    assert {key} == {error["loc"][0] for error in refused.value.errors()}


def one(image_id: int | str, name: str) -> Example:
    return Example(image_id, Path("root", name), (Reference("A dog.", ("a", "dog")),))


@pytest.mark.parametrize(
    ("train", "val", "message"),
    [
        ([], [], "no images for train, val"),
        (
            [one(1, "1.jpg"), one(1, "2.jpg")],
            [one(3, "3.jpg")],
            "id 1 occurs twice, for train .*1.jpg and train .*2.jpg",
        ),
        ([one(1, "1.jpg")], [one(1, "2.jpg")], "id 1 occurs twice, for train .*1.jpg and val .*2.jpg"),
        ([one(1, "1.jpg")], [one(2, "1.jpg")], "path root.1.jpg occurs twice, for train 1 and val 2"),
    ],
)
def test_splits_that_cannot_be_compared_on(train: list[Example], val: list[Example], message: str) -> None:
    with pytest.raises(CaptioningError, match=message):
        check_splits({"train": train, "val": val}, "file")
