import json
from pathlib import Path
from typing import Any

import pytest

from captioning.data.example import Example, Reference
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.splits import read
from captioning.errors import CaptioningError


def record(name: str, split: str, **more: Any) -> dict[str, Any]:
    return {"filename": name, "split": split, "sentences": [{"raw": "A Dog.", "tokens": ["a", "dog"]}], **more}


def three() -> list[dict[str, Any]]:
    return [record("1.jpg", "train", imgid=1), record("2.jpg", "val", imgid=2), record("3.jpg", "test", imgid=3)]


def reader(
    folder: Path, images: list[dict[str, Any]], restval: str | None = "train", absent: tuple[str, ...] = ()
) -> KarpathyReader:
    root = folder / "images"
    root.mkdir()
    for image in images:
        path = root / image.get("filepath", "") / image["filename"]
        if image["filename"] not in absent:
            path.parent.mkdir(exist_ok=True)
            path.touch()
    (folder / "data.json").write_text(json.dumps({"images": images, "dataset": "tiny"}))
    return KarpathyReader(str(root), folder / "data.json", restval)


def test_examples(tmp_path: Path) -> None:
    images = three()
    images[0] |= {"cocoid": 77, "filepath": "train2014"}
    images[1]["sentences"] = [{"raw": "A man's\nhat!"}, {"tokens": ["hat"]}, {"raw": "...", "tokens": []}]
    del images[2]["imgid"]
    splits = reader(tmp_path, images)()
    root = tmp_path / "images"
    dog = (Reference("A Dog.", ("a", "dog")),)
    assert splits == {
        "train": [Example(77, root / "train2014" / "1.jpg", dog)],
        "val": [
            Example(2, root / "2.jpg", (Reference("A man's\nhat!", ("a", "man's", "hat")), Reference("hat", ("hat",))))
        ],
        "test": [Example("3.jpg", root / "3.jpg", dog)],
    }


@pytest.mark.parametrize(("restval", "counts"), [("train", (2, 1, 1)), ("val", (1, 2, 1)), (None, (1, 1, 1))])
def test_restval_joins_a_split(tmp_path: Path, restval: str | None, counts: tuple[int, ...]) -> None:
    splits = reader(tmp_path, [*three(), record("4.jpg", "restval", imgid=4)], restval)()
    assert tuple(len(splits[split]) for split in ("train", "val", "test")) == counts


def test_photographs_are_named_whether_they_are_there_or_not(tmp_path: Path) -> None:
    images = [*three(), record("4.jpg", "restval", imgid=4, filepath="val2014")]
    named = reader(tmp_path, images, restval=None, absent=("2.jpg",)).photographs()
    assert named == [tmp_path / "images" / name for name in ("1.jpg", "2.jpg", "3.jpg", "val2014/4.jpg")]


def test_all_examples_whatever_their_split(tmp_path: Path) -> None:
    images = [record("4.jpg", "restval", imgid=4), record("2.jpg", "val", imgid=2), record("5.jpg", "of my own")]
    found = reader(tmp_path, images).examples()
    assert [example.image_id for example in found] == [4, 2, "5.jpg"]


def test_absent_photographs_are_counted_and_named(tmp_path: Path) -> None:
    images = [*three(), *(record(f"{i}.jpg", "train", imgid=i, filepath="more") for i in range(4, 9))]
    absent = ("2.jpg", "5.jpg", "6.jpg", "7.jpg")
    made = reader(tmp_path, images, absent=absent)
    message = r"4 of 8 photographs are not on disk: .*/2\.jpg, .*/more/5\.jpg, .*/more/6\.jpg, \.\.\.; set data\.root"
    with pytest.raises(CaptioningError, match=message):
        read(made)
    assert len(read(made, photographs=False)["train"]) == 6


def test_a_byte_order_mark_and_utf16_are_read(tmp_path: Path) -> None:
    made = reader(tmp_path, three())
    text = made.annotations.read_text()
    expected = made()
    for encoding in ("utf-8-sig", "utf-16"):
        made.annotations.write_text(text, encoding=encoding)
        assert made() == expected
