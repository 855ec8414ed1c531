"""Readers of examples with several images, in miniature: tables, R2Gen's reports, LEVIR-CC."""

import pytest
from data.readers.layouts import KARPATHY, levir_cc
from json_files import write_json
from refusals import refuses

from captioning.data.example import Example, Reference
from captioning.data.readers.reading import run_reader
from captioning.data.readers.table import TableReader
from captioning.errors import CaptioningError
from experiments.several_images.levir_cc import LevirReader
from experiments.several_images.r2gen import R2GenReader

DOG = (Reference("A dog.", ("a", "dog")),)
SHARES = {"train": (0, 1), "val": (0, 1), "test": (0, 1)}


def example(name, *paths):
    return Example(name, paths[0], DOG, further=paths[1:])


def test_reports_of_r2gen(tmp_path):
    names = {"train": ["a/0.png", "a/1.png"], "val": ["b/0.png"], "test": ["c/0.png", "a/1.png"]}
    entries = {
        split: [{"id": split, "report": "A dog.", "image_path": paths, "split": split}]
        for split, paths in names.items()
    }
    file = tmp_path / "annotation.json"
    write_json(file, entries)
    reader = R2GenReader(tmp_path, file)
    paths = {split: [tmp_path / name for name in each] for split, each in names.items()}
    assert reader() == {split: [example(split, *each)] for split, each in paths.items()}
    for path in [path for each in paths.values() for path in each][:3]:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    with refuses(r"1 of 5 .*c/0\.png"):
        run_reader(reader)
    entries["val"][0]["image_path"] = []
    write_json(file, entries)
    with pytest.raises(Exception, match=r"val\.0\.image_path"):
        reader()


def test_an_example_without_one_of_its_images_is_left_out(tmp_path):
    rows = ["image,other,caption,split"]
    rows += [f"{i}.png,{i}b.png,A dog.,{split}" for i, split in enumerate(("train", "val", "test"))]
    rows += ["3.png,,A dog.,train", "4.png,4b.png,A dog.,train"]
    (tmp_path / "captions.csv").write_text("\n".join(rows))
    for name in ("0", "0b", "1", "1b", "2", "2b", "3", "4"):
        (tmp_path / f"{name}.png").touch()
    lists = {split: f"{split}.txt" for split in SHARES}
    reader = TableReader(tmp_path, tmp_path / "captions.csv", lists, ["image", "other"])
    skipped = []
    splits = run_reader(reader, skipped=skipped)
    assert splits["train"] == [
        example("0.png", tmp_path / "0.png", tmp_path / "0b.png"),
        example("3.png", tmp_path / "3.png"),
    ]
    assert ["4b.png" in str(error) for error in skipped] == [True]


@pytest.mark.parametrize(
    "rows, cause",
    [
        (["front,caption", "0.png,A dog."], "no column side"),
        (["image,side,caption", "0.png,1.png,A dog."], "does not name one column"),
        (["front,side,caption", "0.png,1.png,A", "0.png,2.png,B"], "other images in an earlier"),
        (["front,side,caption", "0.png,../1.png,A"], "below the folder"),
        (["front,side,top,caption", "0.png,,1.png,A"], "after an empty column"),
    ],
)
def test_tables_that_do_not_name_the_images(tmp_path, rows, cause):
    table = tmp_path / "captions.csv"
    table.write_text("\n".join(rows))
    with pytest.raises((CaptioningError, ValueError), match=cause):
        TableReader(tmp_path, table, SHARES, ["front", "side", *(["top"] * ("top" in rows[0]))])()


def test_before_and_after_in_folders(tmp_path):
    """The layout of LEVIR-CC."""
    levir_cc(tmp_path)
    reader = LevirReader(tmp_path, tmp_path / "LevirCCcaptions.json")
    found = {split: [example.paths for example in examples] for split, examples in reader().items()}
    of_split = {"train": [0, 1], "val": [2], "test": [3]}
    assert found == {
        split: [tuple(tmp_path / split / side / f"{i}.jpg" for side in "AB") for i in numbers]
        for split, numbers in of_split.items()
    }
    twice = [entry | {"imgid": 0} for entry in KARPATHY]
    write_json(tmp_path / "LevirCCcaptions.json", {"images": twice})
    with refuses("0 occurs twice"):
        reader()
