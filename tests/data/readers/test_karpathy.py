import json
from pathlib import Path
from typing import Any

import pytest

from captioning.data.example import Example, Reference
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.reading import read
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
        path = root / image.get("filepath", "") / (image["filename"] or "nameless")
        if image["filename"] not in absent and ".." not in path.parts and root in path.parents:
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


def test_unknown_restval() -> None:
    with pytest.raises(CaptioningError, match="restval=all is no split"):
        KarpathyReader("images", "data.json", "all")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": "dev"}, r"unknown split 'dev'; allowed: train, val, test and restval"),
        ({"split": "val"}, "no images for train"),
        ({"filename": "../1.jpg"}, r"'\.\./1.jpg' leaves the folder"),
        ({"filename": "/etc/passwd"}, "'/etc/passwd' leaves the folder"),
        ({"filepath": "../images"}, "leaves the folder"),
        ({"imgid": 3}, r"image id 3 occurs twice, for .*1\.jpg and .*3\.jpg"),
        ({"sentences": []}, r"1\.jpg has no caption"),
        ({"sentences": [{"text": "a dog"}]}, r"images\[0\] is not of the Karpathy layout .* KeyError 'raw'"),
        ({"filename": None}, r"images\[0\] is not of the Karpathy layout"),
        ({"sentences": [{"raw": "..."}]}, r"1\.jpg has no caption"),
        (
            {"sentences": [{"raw": "A dog", "tokens": "a dog"}]},
            r"images\[0\] is not of the Karpathy layout .* list of words",
        ),
        ({"sentences": [{"tokens": ["a", 2]}]}, r"images\[0\] is not of the Karpathy layout .* int found"),
        ({"sentences": [{"raw": "A dog", "tokens": ["dog\ud83d"]}]}, r"\[0\]: the list of tokens .* half a character"),
        ({"filename": "x" * 10**6}, r"images\[0\]: no file can have the name"),
        (
            {"sentences": [{"raw": "A dog"}, {"raw": "a" * 10**7}]},
            r"images\[0\]\.sentences\[1\]: a caption of 10,000,000",
        ),
        ({"filename": "3.jpg"}, r"the photograph .*3\.jpg occurs twice, as train 1 and test 3"),
    ],
)
def test_bad_content(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    images = three()
    images[0] |= change
    with pytest.raises(CaptioningError, match=message) as caught:
        reader(tmp_path, images, absent=("x" * 10**6,))()
    assert len(str(caught.value)) < 1000
    str(caught.value).encode()


def test_absent_photographs_are_counted_and_named(tmp_path: Path) -> None:
    images = [*three(), *(record(f"{i}.jpg", "train", imgid=i, filepath="more") for i in range(4, 9))]
    absent = ("2.jpg", "5.jpg", "6.jpg", "7.jpg")
    made = reader(tmp_path, images, absent=absent)
    message = r"4 of 8 photographs are not on disk: .*/2\.jpg, .*/more/5\.jpg, .*/more/6\.jpg, \.\.\.; set data\.root"
    with pytest.raises(CaptioningError, match=message):
        read(made)
    assert len(read(made, photographs=False)["train"]) == 6


def test_absent_folder_of_photographs(tmp_path: Path) -> None:
    images = three()
    images[1] |= {"filepath": "val2014"}
    with pytest.raises(CaptioningError, match=r"1 of 3 photographs .*/val2014/2\.jpg; set data\.root"):
        read(reader(tmp_path, images, absent=("2.jpg",)))


def test_missing_root_and_file_name_their_settings(tmp_path: Path) -> None:
    made = reader(tmp_path, three())
    made.root = tmp_path / "nowhere"
    with pytest.raises(CaptioningError, match=r"3 of 3 photographs .*/nowhere/1\.jpg, .*; set data\.root"):
        read(made)
    made.annotations.unlink()
    with pytest.raises(CaptioningError, match=r"data\.json: No such file.*set data\.root"):
        made()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", 'no list "images"'),
        ('{"images": {}}', 'no list "images"'),
        ('{"images": [], "annotations": []}', "COCO's own layout"),
        ('{"images": [3]}', r"images\[0\] is not of the Karpathy layout"),
        ('{"images": []}', "no images for train, val, test"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_json_of_another_kind(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "data.json"
    path.write_text(text)
    with pytest.raises(CaptioningError, match=message):
        KarpathyReader(tmp_path, path)()
