import gc
import os
import weakref
from pathlib import Path

import pytest

from captioning.data.example import Example, Reference, Splits
from captioning.data.readers.reading import (
    Sentence,
    absent_files,
    check_splits,
    choose,
    make_example,
    read,
    read_lines,
)
from captioning.errors import CaptioningError

DOG = Reference("A dog.", ("a", "dog"))
SOURCE = Path("captions.json")


def one(image_id: int | str, name: str) -> Example:
    return Example(image_id, Path("root", name), (DOG,))


def test_references_have_words() -> None:
    captions = [Sentence(" ?! "), Sentence("A dog."), Sentence("A dog.", ()), Sentence("Dog", ("one", "dog"))]
    found = (DOG, Reference("Dog", ("one", "dog")))
    assert make_example(1, Path("1.jpg"), captions) == Example(1, Path("1.jpg"), found)


def test_ids_and_photographs_that_only_look_alike() -> None:
    check_splits({"train": [one(1, "1.jpg"), one("1", "a/1.jpg")], "val": [one(2, "b/1.jpg")]}, "file")


@pytest.mark.parametrize(
    ("train", "val", "message"),
    [
        ([], [], "no images for train, val"),
        ([one(1, "1.jpg"), one(1, "2.jpg")], [one(3, "3.jpg")], "id 1 .* train .*1.jpg and train .*2.jpg"),
        ([one(1, "1.jpg")], [one(2, "1.jpg")], "path root.1.jpg .* train 1 and val 2"),
    ],
)
def test_splits_that_cannot_be_compared_on(train: list[Example], val: list[Example], message: str) -> None:
    with pytest.raises(CaptioningError, match=message):
        check_splits({"train": train, "val": val}, "file")


def test_each_folder_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / "ab"[i % 2] / f"{i}.jpg" for i in range(10)]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    listed: list[str] = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: (listed.append(str(folder)), listdir(folder))[1])
    absent = tmp_path / "a" / "x.jpg"
    assert absent_files([*paths, absent]) == [absent]
    assert sorted(listed) == [str(tmp_path / "a"), str(tmp_path / "b")]


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.self = self


def test_nothing_is_collected_while_a_reader_reads_and_everything_afterwards() -> None:
    rings = []

    def reader() -> Splits:
        rings.append(weakref.ref(Ring()))
        assert [[] for _ in range(10**5)]  # more than one generation holds
        raise CaptioningError(f"collected: {rings[0]() is None}")

    with pytest.raises(CaptioningError, match="collected: False"):
        read(reader)
    gc.collect()
    assert rings[0]() is None
    assert gc.isenabled()


@pytest.mark.parametrize("count", [1, 10, 101, 1009])
def test_shares_side_by_side_are_exact_and_disjoint(count: int) -> None:
    images = list(range(count))
    chosen = [choose(share, images, SOURCE) for share in ((0, 0.7), (0.7, 0.8), (0.8, 1))]
    assert sorted(image for each in chosen for image in each) == images == choose((0, 1), images, SOURCE)
    assert all(abs(len(each) - share * count) <= 1 for each, share in zip(chosen, (0.7, 0.1, 0.2), strict=True))
    assert all(each == sorted(each) for each in chosen)


def test_a_share_depends_on_the_ids_and_not_on_their_order() -> None:
    # SHA-256 of "1" to "8" in hexadecimal begins 6b, d4, 4e, 4b, ef, e7, 79, 2c: 8, 4, 3 are the first three
    assert choose((0, 3 / 8), [1, 2, 3, 4, 5, 6, 7, 8], SOURCE) == [3, 4, 8]
    assert choose((0, 3 / 8), list("82417653"), SOURCE) == ["8", "4", "3"]


def test_a_list_chooses_in_its_own_order(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_bytes(b"\xef\xbb\xbf12\r\n\r\n b c.jpg \r\n3")
    assert choose(str(path), [3, "b c.jpg", 7, 12], SOURCE) == [12, "b c.jpg", 3]


def test_lines_end_with_line_feeds_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes("\ufeffone\r\n\r\n \t\ntwo\n".encode() + "a\x85b\u2028c\x0b d\re\n".encode())
    expected = [(1, "one"), (4, "two"), (5, "a\x85b\u2028c\x0b d\re")]
    assert read_lines(path) == [(f"{path}, line {number}", line) for number, line in expected]
