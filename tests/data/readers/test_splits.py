import os
from pathlib import Path
from typing import Any

import pytest

from captioning.data.example import Example, Reference
from captioning.data.readers.splits import (
    MAX_CHARACTERS,
    check_photographs,
    check_splits,
    make_example,
    make_reference,
    photograph_path,
    three,
)
from captioning.errors import CaptioningError

DOG = Reference("A dog.", ("a", "dog"))


def test_photographs_lie_below_the_root() -> None:
    root = Path("root")
    assert photograph_path(root, "a/./b.c.jpg", "there") == root / "a" / "b.c.jpg"
    assert photograph_path(root, "..jpg", "there") == root / "..jpg"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../1.jpg", "leaves the folder"),
        ("a/../../1.jpg", "leaves the folder"),
        ("/etc/passwd", "leaves the folder"),
        ("", "leaves the folder"),
        (".", "leaves the folder"),
        ("a\0/1.jpg", "no file can have the name"),
        ("\ud800/1.jpg", "no file can have the name"),
    ],
)
def test_names_that_are_none(name: str, message: str) -> None:
    with pytest.raises(CaptioningError, match=f"^there: .*{message}"):
        photograph_path(Path("root"), name, "there")


def test_references_have_words() -> None:
    assert make_reference(" A dog. ", "there") == Reference(" A dog. ", ("a", "dog"))
    assert make_reference("A dog.", "there", ["one", "dog"]) == Reference("A dog.", ("one", "dog"))
    assert make_reference(" ?! ", "there") is None
    assert make_reference("A dog.", "there", []) is None


def test_captions_of_any_sane_length_are_kept() -> None:
    text = "dog " * (MAX_CHARACTERS // 4)
    assert make_reference(text, "there") == Reference(text, ("dog",) * (MAX_CHARACTERS // 4))
    with pytest.raises(CaptioningError, match=r"^there: a caption of 10,001 characters; .* at most 10,000"):
        make_reference(text + "s", "there")


@pytest.mark.parametrize(
    ("text", "message"),
    [("dog " * 2_500_000, "10,000,000 characters"), ("a dog \ud83d", "half a character"), (None, "None is not text")],
    ids=["ten megabytes", "half a surrogate pair", "null"],
)
def test_captions_that_no_scorer_can_read(text: Any, message: str) -> None:
    with pytest.raises(CaptioningError, match=f"^there: .*{message}") as caught:
        make_reference(text, "there")
    str(caught.value).encode()  # can be printed
    assert len(str(caught.value)) < 300


def test_examples_have_references() -> None:
    path = Path("root/1.jpg")
    assert make_example(1, path, "there", [None, DOG, None]) == Example(1, path, (DOG,))
    with pytest.raises(CaptioningError, match=r"^there: 1\.jpg has no caption"):
        make_example(1, path, "there", [None])


@pytest.mark.parametrize(
    ("image_id", "message"),
    [
        *((image_id, "is neither a whole number nor text") for image_id in (None, True, 1.0, [1])),
        ("1\ud83d", "holds half a character"),
    ],
)
def test_ids_that_are_none(image_id: Any, message: str) -> None:
    with pytest.raises(CaptioningError, match=f"^there: the image id .* {message}"):
        make_example(image_id, Path("1.jpg"), "there", [DOG])


def one(image_id: int | str, name: str) -> Example:
    return Example(image_id, Path("root", name), (DOG,))


@pytest.mark.parametrize(
    ("train", "val", "message"),
    [
        ([one(1, "1.jpg")], [], "file has no images for val"),
        ([], [], "file has no images for train, val"),
        (
            [one(1, "1.jpg"), one(1, "2.jpg")],
            [one(3, "3.jpg")],
            "id 1 occurs twice, for train .*1.jpg and train .*2.jpg",
        ),
        ([one(1, "1.jpg")], [one(1, "2.jpg")], "id 1 occurs twice, for train .*1.jpg and val .*2.jpg"),
        ([one(1, "1.jpg")], [one(2, "1.jpg")], "photograph root.1.jpg occurs twice, as train 1 and val 2"),
        ([one(1, "1.jpg")] * 2, [one(2, "2.jpg")], "id 1 occurs twice"),
    ],
)
def test_splits_that_cannot_be_compared_on(train: list[Example], val: list[Example], message: str) -> None:
    with pytest.raises(CaptioningError, match=message):
        check_splits({"train": train, "val": val}, "file")


def test_ids_and_photographs_that_only_look_alike() -> None:
    check_splits({"train": [one(1, "1.jpg"), one("1", "a/1.jpg")], "val": [one(2, "b/1.jpg")]}, "file")


def test_all_three_splits_are_needed() -> None:
    assert list(three({"test": 1, "val": 2, "train": 3}).items()) == [("train", 3), ("val", 2), ("test", 1)]
    with pytest.raises(CaptioningError, match=r"splits has train, val; it must have train, val, test"):
        three({"train": 1, "val": 2})
    with pytest.raises(CaptioningError, match=r"splits has train, val, test, dev; it must"):
        three({"train": 1, "val": 2, "test": 3, "dev": 4})


def test_each_folder_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = []
    for i in range(10):
        path = tmp_path / "ab"[i % 2] / f"{i}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.touch()
        examples.append(Example(i, path, (DOG,)))
    listed: list[str] = []
    scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: (listed.append(str(folder)), scan(folder))[1])
    monkeypatch.setattr(os, "stat", None)  # nothing asks for single files
    check_photographs({"train": examples[:7], "val": examples[7:]})
    assert sorted(listed) == [str(tmp_path / "a"), str(tmp_path / "b")]


def test_a_folder_that_cannot_be_listed(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 300)
    with pytest.raises(CaptioningError, match=r"cannot list the photographs in .*xxx: File name too long"):
        check_photographs({"val": [Example(1, folder / "1.jpg", (DOG,))]})
