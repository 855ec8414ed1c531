import json
from pathlib import Path
from typing import Any

import pytest

from captioning.data.example import Example, Reference
from captioning.data.readers.coco import CocoReader, CocoSplit
from captioning.data.readers.reading import read
from captioning.errors import CaptioningError


def image(number: int) -> dict[str, Any]:
    return {"id": number, "file_name": f"{number}.jpg", "license": 4}


def caption(number: int, text: Any = "A dog.") -> dict[str, Any]:
    return {"id": 99, "image_id": number, "caption": text}


def file(folder: Path, name: str, images: list[Any], annotations: list[Any], absent: tuple[int, ...] = ()) -> CocoSplit:
    """A split of which all photographs, but for the `absent` ones, lie in a folder of its name."""
    root, path = folder / name, folder / f"captions_{name}.json"
    root.mkdir()
    for number in range(10):
        if number not in absent:
            (root / f"{number}.jpg").touch()
    path.write_text(json.dumps({"info": {}, "images": images, "annotations": annotations}))
    return CocoSplit(str(root), str(path))


def reader(train: CocoSplit, val: CocoSplit, test: CocoSplit) -> CocoReader:
    return CocoReader({"test": test, "train": train, "val": val})


def test_examples(tmp_path: Path) -> None:
    captions = [caption(7, "Two\nCATS, here."), caption(4), caption(7, " ... "), caption(7, "A man's hat")]
    split = file(tmp_path, "val", [image(7), image(4)], captions)
    root = tmp_path / "val"
    assert split() == [
        Example(
            7,
            root / "7.jpg",
            (Reference("Two\nCATS, here.", ("two", "cats", "here")), Reference("A man's hat", ("a", "man's", "hat"))),
        ),
        Example(4, root / "4.jpg", (Reference("A dog.", ("a", "dog")),)),
    ]


def test_three_splits_of_two_files(tmp_path: Path) -> None:
    train = file(tmp_path, "train", [image(1), image(2)], [caption(1), caption(2)])
    val = file(tmp_path, "val", [image(3), image(4), image(5)], [caption(i) for i in (3, 4, 5)])
    (tmp_path / "ids.txt").write_text("5\n3\n")
    (tmp_path / "test.txt").write_text("4\n")
    test = CocoSplit(val.root, val.annotations, tmp_path / "test.txt")
    splits = reader(train, CocoSplit(val.root, val.annotations, str(tmp_path / "ids.txt")), test)()
    assert {name: [example.image_id for example in examples] for name, examples in splits.items()} == {
        "train": [1, 2],
        "val": [5, 3],
        "test": [4],
    }
    assert splits["test"][0].path == tmp_path / "val" / "4.jpg"


def test_parts_that_overlap(tmp_path: Path) -> None:
    numbers = range(8)
    whole = file(tmp_path, "val", [image(i) for i in numbers], [caption(i) for i in numbers])
    parts = [CocoSplit(whole.root, whole.annotations, share) for share in ([0, 0.5], [0.5, 0.75], [0.5, 1])]
    with pytest.raises(CaptioningError, match=r"captions_val\.json: the image id \d occurs twice, for val .* and test"):
        reader(*parts)()


def test_the_same_photograph_under_two_ids(tmp_path: Path) -> None:
    train = file(tmp_path, "train", [image(1)], [caption(1)])
    other = file(tmp_path, "val", [image(2), image(3) | {"file_name": "2.jpg"}], [caption(2), caption(3)])
    with pytest.raises(CaptioningError, match=r"_train\.json, .*_test\.json: the photograph .*2\.jpg occurs twice"):
        reader(train, other, file(tmp_path, "test", [image(5)], [caption(5)]))()


@pytest.mark.parametrize(
    ("images", "annotations", "message"),
    [
        ([image(1), image(2), image(1)], [], r"images\[2\]: the image id 1 occurs twice, first in .*images\[0\]"),
        ([image(1)], [caption(1), caption(8)], r"annotations\[1\]: there is no image 8 for the caption 'A dog\.'"),
        ([image(1)], [caption(1) | {"image_id": "1"}], r"annotations\[0\]: there is no image '1'"),
        ([image(1), image(2)], [caption(1)], r"images\[1\]: 2\.jpg has no caption"),
        ([image(1)], [caption(1, "")], r"images\[0\]: 1\.jpg has no caption"),
        ([image(1)], [caption(1), caption(1, None)], r"annotations\[1\]: the caption None is not text"),
        ([image(1)], [caption(1, "x" * 10**7)], r"annotations\[0\]: a caption of 10,000,000 characters"),
        ([image(1) | {"file_name": "../1.jpg"}], [caption(1)], r"images\[0\]: the path '\.\./1\.jpg' leaves"),
        ([image(1) | {"file_name": None}], [caption(1)], r"images\[0\] is not of the COCO layout .*TypeError"),
        ([{"id": 1}], [caption(1)], r"images\[0\] is not of the COCO layout \(id, file_name\): KeyError 'file_name'"),
        ([image(1) | {"id": [1]}], [], r"images\[0\]: the image id \[1\] is neither a whole number nor text"),
        ([image(1) | {"id": "1\ud83d"}], [], r"images\[0\]: the image id .* holds half a character"),
        ([image(1) | {"id": None}], [caption(1) | {"image_id": None}], r"images\[0\]: the image id None"),
        ([3], [], r"images\[0\] is not of the COCO layout"),
        ([image(1)], [{"image_id": 1, "bbox": []}], r"annotations\[0\] is not of the layout .* KeyError 'caption'"),
        ([image(1)], [3], r"annotations\[0\] is not of the layout of COCO's captions_\*\.json"),
        ([], [], r"the 0 images of .*captions_val\.json is no image"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_bad_content(tmp_path: Path, images: list[Any], annotations: list[Any], message: str) -> None:
    with pytest.raises(CaptioningError, match=rf"captions_val\.json.*{message}|{message}") as caught:
        file(tmp_path, "val", images, annotations)()
    assert "captions_val.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("{", "is not JSON"),
        ("[1]", "has no list images and no list annotations"),
        ('{"images": [], "annotations": {}}', "has no list annotations; .* test images are not public"),
        ('{"images": [{"filename": "1.jpg", "sentences": []}]}', "of the Karpathy layout .* data=coco"),
        ('{"images": [3]}', "has no list annotations"),
        ('[{"image_id": 1, "caption": "a dog"}]', "has no list images"),  # a file of results
    ],
    ids=["deep", "cut", "list", "test images", "Karpathy", "numbers", "results"],
)
def test_json_of_another_kind(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "captions.json"
    path.write_text(text)
    with pytest.raises(CaptioningError, match=rf"captions\.json.*{message}"):
        CocoSplit(tmp_path, path)()


def test_absent_photographs_folder_and_file(tmp_path: Path) -> None:
    split = file(tmp_path, "val", [image(1), image(2)], [caption(1), caption(2)], absent=(2,))
    with pytest.raises(CaptioningError, match=r"1 of 2 photographs are not on disk: .*/val/2\.jpg; set data\.root"):
        read(lambda: {"val": split()})
    split.root = tmp_path / "nowhere"
    with pytest.raises(CaptioningError, match=r"2 of 2 photographs .*/nowhere/1\.jpg, .*; set data\.root"):
        read(lambda: {"val": split()})
    with pytest.raises(CaptioningError, match=r"cannot read .*captions\.json: No such file"):
        CocoSplit(split.root, tmp_path / "captions.json")()
