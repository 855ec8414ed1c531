"""Names of images as files, lists and tables spell them: letters, case and suffixes."""

import ast
from pathlib import Path
from unicodedata import normalize

import pytest
from json_files import write_json
from refusals import refuses

import captioning
from captioning.data.image_files import read_folder
from captioning.data.readers.ids import common_images, file_name, match_ids, match_names
from captioning.data.readers.reading import run_reader
from captioning.data.readers.table import TableReader

WHOLE, APART = (normalize(form, "bébé.jpg") for form in ("NFC", "NFD"))
HALF = WHOLE[:2] + APART[3:]
PARTS = {"train": (0, 1), "val": None, "test": None}
NORMALIZE = ("normalize('NFC'", "unicodedata.normalize('NFC'")
SPELT = r"is 'be\\u0301be\\u0301\.jpg' or 'b\\xe9b\\xe9\.jpg'"


def read(folder, name, parts=PARTS, skipped=None):
    table = folder / "captions.csv"
    table.write_text(f"image,caption\n{name},a dog\n")
    reader = TableReader(folder, table, parts)
    return run_reader(reader, skipped=skipped, needed=("train",))["train"]


@pytest.mark.parametrize("asked, there", [(WHOLE, APART), (APART, WHOLE), (HALF, WHOLE)])
def test_letters_may_be_composed_otherwise(asked, there, tmp_path):
    (tmp_path / there).touch()
    for skipped in (None, []):  # a good photograph is not left out
        (example,) = read(tmp_path, asked, skipped=skipped)
        assert (example.image_id, example.path.name) == (asked, there)
        assert not skipped
    listed = tmp_path / "train.txt"
    listed.write_text(there)
    (example,) = read(tmp_path, asked, PARTS | {"train": listed})
    assert (example.image_id, example.path.name) == (asked, there)
    ((example,), absent) = read_folder(tmp_path, tmp_path / "captions.csv")
    assert (example.path.name, len(example.references), absent) == (there, 1, 0)
    assert match_ids({asked: 1}, [there, "a.jpg"]) == {there: 1}
    assert common_images([there], {"a": match_ids({asked: 1}, [there])}, False) == [there]


def test_names_are_compared_as_they_are_first(tmp_path):
    both = {WHOLE, APART}
    assert match_names([WHOLE, APART, "B.JPG"], {*both, "b.jpg"}) == {
        WHOLE: WHOLE,
        APART: APART,
        "B.JPG": "b.jpg",
    }
    for name in both:
        (tmp_path / name).touch()
        (example,) = read(tmp_path, name)
        assert example.path.name == name


def test_two_names_of_the_same_letters_are_an_error_that_spells_both(tmp_path):
    for name in (WHOLE, APART):
        (tmp_path / name).touch()
    for skipped in (None, []):
        with refuses(SPELT):
            read(tmp_path, HALF, skipped=skipped)
    with refuses(SPELT):
        match_ids({HALF: 1}, [WHOLE, APART])
    write_json(tmp_path / "references.json", {HALF: ["a dog"]})
    with refuses(SPELT):
        read_folder(tmp_path, tmp_path / "references.json")


def test_files_named_after_images_are_different_files_everywhere():
    taken = set()
    names = ["13", "13", "x", "X", "x-2", "13"]
    found = [file_name(name, taken) for name in names]
    assert found == ["13", "13-2", "x", "X-2", "x-2-2", "13-3"]
    assert len({name.casefold() for name in found}) == len(names)


def test_letters_are_composed_in_one_place_for_all_names():
    """And words, which captions have, in theirs."""
    package = Path(captioning.__file__).parent
    users = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node).startswith(NORMALIZE)
    }
    assert users == {"data/readers/ids.py", "data/words.py"}
