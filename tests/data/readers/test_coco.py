import json
from pathlib import Path
from typing import Any

from captioning.data.example import Example, Reference
from captioning.data.readers.coco import CocoReader, CocoSplit


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
