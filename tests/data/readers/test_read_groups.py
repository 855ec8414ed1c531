"""The groups of images: a column of a table, a key of a JSON file's images, or lengths."""

import pytest
from json_files import write_json
from refusals import refuses

from captioning.data.readers.captions import read_references
from captioning.data.readers.coco import CocoSplit
from captioning.data.readers.groups import with_groups
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.options import reading
from captioning.data.readers.reading import run_reader
from captioning.data.readers.table import TableReader
from captioning.data.words import ENGLISH_WORDS
from experiments.languages_flickr8k.languages import LanguagesReader

PLACES = {"train": "sea", "val": None, "test": "in\ntown"}
READ = {"train": "sea", "val": "", "test": "in town"}


def coco(path):
    """One image has no file, and is left out."""
    images = [{"id": -1, "place": "nowhere"}]
    images += [
        {"id": i, "file_name": f"{i}", "place": own} for i, own in enumerate(PLACES.values())
    ]
    write_json(
        path,
        {
            "images": images,
            "annotations": [{"image_id": i, "caption": "A dog."} for i in range(len(PLACES))],
        },
    )
    split = CocoSplit(path.parent, path)
    return lambda: {name: [example] for name, example in zip(PLACES, split(), strict=True)}


def karpathy(path):
    sentences = [{"raw": "A dog.", "tokens": ["a", "dog"]}]
    write_json(
        path,
        {
            "images": [
                {"filename": f"{name}.jpg", "split": name, "place": own, "sentences": sentences}
                for name, own in PLACES.items()
            ]
        },
    )
    return KarpathyReader(path.parent, path)


def languages(path):
    german = path.with_name("german.json")
    write_json(german, {f"{name}.jpg": ["Ein Hund."] for name in PLACES})
    english = karpathy(path)
    return LanguagesReader(english.root, english.annotations, {"de": german}, "de")


def table(path):
    rows = [
        {"image": f"{name}.jpg", "caption": "A dog.", "split": name, "place": own}
        for name, own in PLACES.items()
    ]
    write_json(path, rows)
    return TableReader(path.parent, path, {name: f"{name}.txt" for name in PLACES})


@pytest.mark.parametrize("write", [coco, karpathy, languages, table])
def test_every_layout_gives_the_groups_of_its_images(tmp_path, write):
    skipped = []
    splits = run_reader(write(tmp_path / "file.json"), False, skipped=skipped, groups="place")
    assert {name: example.group for name, (example,) in splits.items()} == READ
    assert len(skipped) == (write is coco)


def test_what_is_no_text_has_the_name_of_its_key(tmp_path):
    images = [{"id": i, "text_detected": i > 0} for i in range(2)]
    captions = [{"image_id": i, "caption": "A dog."} for i in range(2)]
    write_json(tmp_path / "val.json", {"images": images, "annotations": captions})
    with reading(groups="text_detected"):
        found = read_references(tmp_path / "val.json")
    names = ["text_detected=false", "text_detected=true"]
    assert [record.group for record in found.values()] == names


def test_a_table_of_references_has_groups(tmp_path):
    path = tmp_path / "references.csv"
    path.write_text("image,caption,place\n1.jpg,A dog.,sea\n2.jpg,A cat.,\n")
    with reading(groups="place"):
        found = read_references(path)
    assert {image: record.group for image, record in found.items()} == {"1.jpg": "sea", "2.jpg": ""}


def described(tmp_path, texts, groups=None):
    rows = [{"image": f"{i}", "caption": own, "place": f"{i}"} for i, own in enumerate(texts)]
    write_json(tmp_path / "t.json", rows)
    reader = TableReader(
        tmp_path, tmp_path / "t.json", {"train": None, "val": None, "test": [0, 1]}
    )
    return run_reader(reader, False, needed=("test",), groups=groups)["test"]


def test_lengths_are_in_thirds(tmp_path):
    """Of means of 1, 2.5, 3, 7, 8 and 1 words."""
    texts = ["a", ["a b", "a b c"], "a b c", "a b c d e f g", "a b c d e f g h", "b"]
    found = with_groups(described(tmp_path, texts), "length", ENGLISH_WORDS)
    short, middle, long = (
        f"third {n} (up to {end} words)" for n, end in enumerate((1.0, 3.0, 8.0), 1)
    )
    assert [example.group for example in found] == [short, middle, middle, long, long, short]


@pytest.mark.parametrize("column, count", [("plaice", "0 groups"), ("place", "101 groups")])
def test_no_groups_and_too_many_are_refused(tmp_path, column, count):
    examples = described(tmp_path, ["A dog."] * 101, column)
    with refuses(f"groups={column} gives {count}"):
        with_groups(examples, column, ENGLISH_WORDS)
