import gc
import os
import weakref
from pathlib import Path

import pytest

from captioning.data.example import Example, Reference, Splits
from captioning.data.readers.splits import check_photographs, check_splits, make_example, make_reference, read
from captioning.errors import CaptioningError

DOG = Reference("A dog.", ("a", "dog"))


def one(image_id: int | str, name: str) -> Example:
    return Example(image_id, Path("root", name), (DOG,))


def test_references_have_words() -> None:
    assert make_reference(" A dog. ") == Reference(" A dog. ", ("a", "dog"))
    assert make_reference("A dog.", ["one", "dog"]) == Reference("A dog.", ("one", "dog"))
    assert make_reference(" ?! ") is None
    assert make_reference("A dog.", []) is None
    assert make_example(1, Path("1.jpg"), [None, DOG, None], "there") == Example(1, Path("1.jpg"), (DOG,))


def test_ids_and_photographs_that_only_look_alike() -> None:
    check_splits({"train": [one(1, "1.jpg"), one("1", "a/1.jpg")], "val": [one(2, "b/1.jpg")]}, "file")


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


class Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.self = self


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_collected_while_a_reader_reads_and_everything_afterwards(fails: bool) -> None:
    rings = []

    def reader() -> Splits:
        rings.append(weakref.ref(Ring()))
        gc_pressure = [[] for _ in range(10**5)]  # more than one generation holds
        assert gc_pressure
        if fails:
            raise CaptioningError("no such folder")
        return {"train": []}

    if fails:
        with pytest.raises(CaptioningError, match="no such folder"):
            read(reader)
    else:
        assert read(reader) == {"train": []}
        assert rings[0]() is not None
    gc.collect()
    assert rings[0]() is None
    assert gc.isenabled()
