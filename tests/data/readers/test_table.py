import csv
from pathlib import Path

import pytest

from captioning.data.example import Example, Reference
from captioning.data.readers.schema import read_lines
from captioning.data.readers.table import TableReader

CAPTIONS = """\
image,caption
1.jpg,A dog runs .
2.jpg,"A ""red"" dog , running"
1.jpg,Dogs
sub/3.jpg,A cat
"4, 5.jpg",'Two' cats
"""
LISTS = {"train": "1.jpg\n4, 5.jpg\n", "val": "2.jpg\n", "test": "sub/3.jpg"}
NAMES = ("1.jpg", "2.jpg", "sub/3.jpg", "4, 5.jpg")


def reader(folder: Path, captions: str | bytes = CAPTIONS, **lists: str) -> TableReader:
    for name in NAMES:
        path = folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    table = folder / "captions.txt"
    table.write_bytes(captions if isinstance(captions, bytes) else captions.encode())
    for split, names in (LISTS | lists).items():
        (folder / f"{split}.txt").write_text(names)
    return TableReader(str(folder / "images"), str(table), {split: str(folder / f"{split}.txt") for split in LISTS})


def expected(root: Path) -> dict[str, list[Example]]:
    dogs = (Reference("A dog runs .", ("a", "dog", "runs")), Reference("Dogs", ("dogs",)))
    red = (Reference('A "red" dog , running', ("a", "red", "dog", "running")),)
    return {
        "train": [
            Example("1.jpg", root / "1.jpg", dogs),
            Example("4, 5.jpg", root / "4, 5.jpg", (Reference("'Two' cats", ("two", "cats")),)),
        ],
        "val": [Example("2.jpg", root / "2.jpg", red)],
        "test": [Example("sub/3.jpg", root / "sub" / "3.jpg", (Reference("A cat", ("a", "cat")),))],
    }


TOKENS = """\
1.jpg#0\tA dog runs .
2.jpg#0\tA "red" dog , running
1.jpg#1\tDogs
sub/3.jpg#0\tA cat
4, 5.jpg#0\t'Two' cats
"""
TABS = "\n".join("\t".join(row) for row in csv.reader(CAPTIONS.splitlines())) + "\n"
COLUMNS = """\
number, caption , image
0,A dog runs ., 1.jpg
1,"A ""red"" dog , running",2.jpg
2,Dogs,1.jpg
3,A cat,sub/3.jpg
4,'Two' cats,"4, 5.jpg"
"""


@pytest.mark.parametrize(
    "captions",
    [
        *(CAPTIONS, TOKENS, TABS, COLUMNS),
        *(CAPTIONS.replace("\n", "\r\n"), "\ufeff" + CAPTIONS, CAPTIONS.replace("\n", "\n\n")),
    ],
    ids=["CSV", "tokens", "tabs", "more columns", "Windows", "byte-order mark", "blank lines"],
)
def test_examples(tmp_path: Path, captions: str) -> None:
    assert reader(tmp_path, captions)() == expected(tmp_path / "images")


def test_lists_from_windows(tmp_path: Path) -> None:
    lists = {split: "\ufeff" + names.replace("\n", "\r\n") for split, names in LISTS.items()}
    assert reader(tmp_path, **lists)() == expected(tmp_path / "images")


def test_shares_take_all_photographs(tmp_path: Path) -> None:
    made = reader(tmp_path)
    splits = TableReader(made.root, made.captions, {"train": [0, 0.5], "val": [0.5, 0.75], "test": [0.75, 1]})()
    assert {name: len(examples) for name, examples in splits.items()} == {"train": 2, "val": 1, "test": 1}
    assert {example.image_id for examples in splits.values() for example in examples} == set(NAMES)


def test_photographs_in_no_split_need_neither_file_nor_words(tmp_path: Path) -> None:
    splits = reader(tmp_path, f"{CAPTIONS}\n5.jpg,...\n")()
    assert splits == expected(tmp_path / "images")


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"one\r\n\r\n \t\ntwo\r\n", [(1, "one"), (4, "two")]),
        (b"\xef\xbb\xbfone\n", [(1, "one")]),
        ("a\x85b\u2028c\x0b d\re\n".encode(), [(1, "a\x85b\u2028c\x0b d\re")]),
        (b"", []),
    ],
    ids=["windows", "byte-order mark", "characters that end no line", "empty"],
)
def test_lines(tmp_path: Path, content: bytes, lines: list[tuple[int, str]]) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert read_lines(path) == [(f"{path}, line {number}", line) for number, line in lines]
