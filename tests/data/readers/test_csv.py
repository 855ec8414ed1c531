import csv
from pathlib import Path

import pytest

from captioning.data.example import Example, Reference
from captioning.data.readers.csv import TableReader
from captioning.data.readers.reading import read
from captioning.errors import CaptioningError

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
    ("captions", "message"),
    [
        ("", "captions.txt is empty"),
        ("image;caption\n1.jpg;A dog\n", "line 1: the header 'image;caption' does not name the columns image and"),
        ("1.jpg,A dog\n", "line 1: the header '1.jpg,A dog' does not"),
        ("image,caption,caption\n", "line 1: the header"),
        ("file,caption\n", "line 1: the header 'file,caption' does not"),
        (f"{CAPTIONS}1.jpg\n", "line 7: '1.jpg' has 1 columns and the header 2"),
        (f"{CAPTIONS}1.jpg,A dog, a cat\n", "line 7: .* has 3 columns .* stands in quotes"),
        (f'{CAPTIONS}1.jpg,"A dog\n2.jpg,A dog\n', "line 7: .* is not CSV: unexpected end of data"),
        (f'{CAPTIONS}1.jpg,"A dog" runs\n', "line 7: .* is not CSV: ',' expected"),
        (f"{CAPTIONS}1.jpg,{'x' * 10**7}\n", "line 7: .* is not CSV: field larger than"),
        (f"{CAPTIONS}1.jpg,{'x' * 20_000}\n", "line 7: a caption of 20,000 characters"),
        (f"{CAPTIONS}../1.jpg,A dog\n", "line 7: the path '../1.jpg' leaves"),
        (f"{CAPTIONS},A dog\n", "line 7: the path '' leaves"),
        (b"image,caption\n1.jpg,A caf\xe9\n", "line 2: the byte 0xe9 is not UTF-8"),
        (f"{TOKENS}1.jpg\tA dog\n", r"line 6: '1.jpg\\tA dog' is not of the form name.jpg#0<TAB>caption"),
        (f"{TOKENS}1.jpg#2 A dog\n", "line 6: '1.jpg#2 A dog' is not of the form"),
        (CAPTIONS.replace(',"A ""red"" dog , running"', ', "'), "captions.txt: 2.jpg has no caption"),
        (TOKENS.replace("A cat", ""), "captions.txt: 3.jpg has no caption"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) and len(value) < 70 else "",
)
def test_bad_tables(tmp_path: Path, captions: str | bytes, message: str) -> None:
    with pytest.raises(CaptioningError, match=message) as caught:
        reader(tmp_path, captions)()
    assert "captions.txt" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"val": "2.jpg\n9.jpg\n"}, r"val\.txt, line 2: 9\.jpg is not among the 4 images of .*captions\.txt"),
        ({"val": "2.jpg\n1.jpg\n"}, r"the image id 1\.jpg occurs twice, for train .*1\.jpg and val"),
        ({"test": "2.jpg\n2.jpg\n"}, r"test\.txt, line 2: 2\.jpg is listed twice, first in .*test\.txt, line 1"),
        ({"test": "\n"}, r"test\.txt lists no images"),
    ],
)
def test_bad_lists(tmp_path: Path, lists: dict[str, str], message: str) -> None:
    with pytest.raises(CaptioningError, match=message):
        reader(tmp_path, **lists)()


def test_absent_photographs_folder_and_files(tmp_path: Path) -> None:
    made = reader(tmp_path)
    (tmp_path / "images" / "2.jpg").unlink()
    with pytest.raises(CaptioningError, match=r"1 of 4 photographs are not on disk: .*/images/2\.jpg; set data\.root"):
        read(made)
    made.root = tmp_path / "nowhere"
    with pytest.raises(CaptioningError, match=r"4 of 4 photographs .*/nowhere/1\.jpg, .*; set data\.root"):
        read(made)
    (tmp_path / "test.txt").unlink()
    with pytest.raises(CaptioningError, match=r"cannot read .*test\.txt: No such file"):
        made()
    made.captions.unlink()
    with pytest.raises(CaptioningError, match=r"cannot read .*captions\.txt: No such file"):
        made()
