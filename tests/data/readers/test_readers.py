"""What the readers make of their files, and of a folder of photographs."""

import json
from itertools import chain
from pathlib import Path

import pytest
from json_files import write_json
from pydantic import ValidationError
from refusals import refuses
from shares import choose

from captioning.config.explain import explain
from captioning.data.example import SPLITS, Example, Reference
from captioning.data.image_files import read_folder
from captioning.data.readers.captions import read_examples
from captioning.data.readers.coco import CocoReader, CocoSplit
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.parsing import read_lines
from captioning.data.readers.reading import run_reader
from captioning.data.readers.table import TableReader
from captioning.data.words import Language
from captioning.errors import CaptioningError
from experiments.clips_flickr8k.msrvtt import MsrVttReader
from experiments.languages_flickr8k.languages import LanguagesReader

DOG = (Reference("A Dog.", ("a", "dog")),)
SOURCE = Path("captions.json")


def record(name, split, **more):
    return {
        "filename": name,
        "split": split,
        "sentences": [{"raw": "A Dog.", "tokens": ["a", "dog"]}],
        **more,
    }


def three():
    return [record(f"{i}.jpg", split, imgid=i) for i, split in enumerate(SPLITS, 1)]


def karpathy(folder, images, restval="train"):
    write_json(folder / "data.json", {"images": images, "dataset": "tiny"})
    return KarpathyReader(str(folder), folder / "data.json", restval)


def test_karpathy(tmp_path):
    images = three()
    images[0] |= {"cocoid": 77, "filepath": "train2014"}
    images[1]["sentences"] = [
        {"raw": "A man's\nhat!"},
        {"tokens": ["hat"]},
        {"raw": " ?! "},
        {"raw": "a", "tokens": []},
    ]
    del images[2]["imgid"]
    hats = (Reference("A man's\nhat!", ("a", "man's", "hat")), Reference("hat", ("hat",)))
    expected = {
        "train": [Example(77, tmp_path / "train2014" / "1.jpg", DOG)],
        "val": [Example(2, tmp_path / "2.jpg", hats)],
        "test": [Example("3.jpg", tmp_path / "3.jpg", DOG)],
    }
    reader = karpathy(tmp_path, images)
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        reader.annotations.write_text(json.dumps({"images": images}), encoding=encoding)
        assert reader() == expected


def test_restval_joins_a_split_and_examples_are_read_whatever_theirs(tmp_path):
    images = [*three(), record("1.jpg", "restval", imgid="1", filepath="a")]
    for restval, counts in (("train", [2, 1, 1]), ("val", [1, 2, 1]), (None, [1, 1, 1])):
        reader = karpathy(tmp_path, images, restval)
        assert [len(examples) for examples in reader().values()] == counts
    paths = [tmp_path / name for name in ("1.jpg", "2.jpg", "3.jpg", "a/1.jpg")]
    assert reader.image_paths() == paths
    karpathy(tmp_path, [*images, record("5.jpg", "of my own")])
    ids = [example.image_id for example in read_examples(tmp_path, reader.annotations)]
    assert ids == [1, 2, 3, "1", "5.jpg"]


def test_absent_photographs_are_named(tmp_path):
    more = [record(f"{i}.jpg", "train", imgid=i, filepath="a") for i in range(4, 9)]
    reader = karpathy(tmp_path, [*three(), *more])
    (tmp_path / "a").mkdir()
    for name in ("1.jpg", "3.jpg", "a/4.jpg", "a/8.jpg"):
        (tmp_path / name).touch()
    told = r"4 of 8 .*/a/5\.jpg, .*/a/6\.jpg, .*/a/7\.jpg, \.\.\.; leave .*skip_broken"
    with refuses(told):
        run_reader(reader)
    assert len(run_reader(reader, images=False)["train"]) == 6


def test_wrong_entries_are_left_out_and_listed_where_that_is_asked_for(tmp_path):
    """A malformed line, a caption without a word, an absent photograph, and a listed one that is
    not in the table.
    """
    lines = "1.jpg,a dog\n2.jpg\n3.jpg,?\n4.jpg,a cat\n5.jpg,a cow\n6.jpg,an owl\n"
    (tmp_path / "captions.txt").write_text(f"image,caption\n{lines}")
    for name, ids in {"train": "1324", "val": "5", "test": "6"}.items():
        (tmp_path / f"{name}.txt").write_text("".join(f"{i}.jpg\n" for i in ids))
    for i in "1356":
        (tmp_path / f"{i}.jpg").touch()
    lists = {name: tmp_path / f"{name}.txt" for name in SPLITS}
    table = TableReader(tmp_path, tmp_path / "captions.txt", lists)
    for photographs in (True, False):
        with refuses(r"2\.jpg"):
            run_reader(table, photographs)
    skipped = []
    found = run_reader(table, skipped=skipped)
    ids = [[example.image_id for example in found[name]] for name in SPLITS]
    assert ids == [["1.jpg"], ["5.jpg"], ["6.jpg"]]
    told = [explain(error) for error in skipped]
    parts = ("txt, line 3", "2.jpg is not among", "3.jpg has no caption", "4.jpg is not on disk")
    for part, line in zip(parts, told, strict=True):
        assert part in line
    (tmp_path / "6.jpg").unlink()
    with refuses("no images for test"):
        run_reader(table, skipped=[])


def faulty_coco(folder):
    images = [{"id": i, "file_name": f"{i}.jpg"} for i in range(4)]
    annotations = [{"image_id": i, "caption": "A Dog."} for i in range(4)]
    images += [{"id": 4}, {"id": 3, "file_name": "b"}]
    annotations += [{"image_id": 1}, {"image_id": 2, "caption": 7}]
    annotations += [{"image_id": 9, "caption": "A cat."}]
    file = folder / "data.json"
    write_json(file, {"images": images, "annotations": annotations})
    shares = {"train": (0, 0.5), "val": (0.5, 0.75), "test": (0.75, 1)}
    return CocoReader({split: CocoSplit(folder, file, part) for split, part in shares.items()})


def faulty_karpathy(folder):
    wrong = [record("4.jpg", "train", imgid=4) for _ in range(3)]
    del wrong[0]["sentences"]
    wrong[1]["sentences"] = [{"raw": 3}]
    wrong[2] |= {"filename": "1.jpg"}
    return karpathy(folder, [*wrong[:2], *three(), wrong[2], record("6.jpg", "val", imgid=2)])


FAULTS_OF_COCO = [
    "images[4].file_name",
    "annotations[4].caption",
    "annotations[5].caption=7: must be a valid string",
    "the image 3 occurs twice",
    "no image has the id 9",
]
FAULTS_OF_KARPATHY = [
    "images[0].sentences: must be set",
    "images[1].sentences[0].raw=3: must be a valid string",
    "1.jpg occurs twice",
    "2 occurs twice, for val ",
]


@pytest.mark.parametrize(
    "make, left, faults",
    [(faulty_coco, 4, FAULTS_OF_COCO), (faulty_karpathy, 3, FAULTS_OF_KARPATHY)],
)
def test_wrong_entries_of_json_are_left_out_and_listed(make, left, faults, tmp_path):
    reader = make(tmp_path)
    with pytest.raises((CaptioningError, ValidationError)):
        run_reader(reader, images=False)
    skipped = []
    splits = run_reader(reader, images=False, skipped=skipped)
    assert sum(map(len, splits.values())) == left
    told = [explain(error) for error in skipped]
    assert len(told) == len(faults)
    for fault in faults:
        assert any(fault in line and ".json" in line for line in told), (fault, told)


def test_photographs_in_another_folder_are_found(tmp_path):
    images = [record(f"{i}.jpg", split) for i, split in enumerate(SPLITS)]
    reader = KarpathyReader(tmp_path / "images", karpathy(tmp_path, images).annotations)
    (tmp_path / "Images").mkdir()
    with refuses(r"3 of 3 .* or data\.reader\.root to that of the photographs"):
        run_reader(reader)
    (tmp_path / "Images" / "0.jpg").touch()
    with refuses(r"0\.jpg is in (.*/Images): set data\.reader\.root=\1"):
        run_reader(reader)


def test_without_lists_the_splits_are_shares_or_those_of_the_table(tmp_path, caplog):
    caplog.set_level("INFO")
    lists = {split: tmp_path / f"{split}.txt" for split in SPLITS}
    rows = [f"{i}.jpg\ta dog" for i in range(20)]
    (tmp_path / "captions.tsv").write_text("\n".join(["image\tcaption", *rows]))
    reader = TableReader(tmp_path, tmp_path / "captions.txt", lists)
    assert [len(reader()[split]) for split in SPLITS] == [16, 2, 2]
    assert "tsv has no train.txt, val.txt, test.txt beside it: splits by 80 %" in caplog.text
    pairs = zip(("train", "test", "Validation", "train", "extra"), "abcad", strict=True)
    table = "".join(f"{split},{image}.jpg,a dog\n" for split, image in pairs)
    (tmp_path / "captions.txt").write_text(f"split,image,caption\n{table}")
    reader = TableReader(tmp_path, tmp_path / "captions.txt", lists)
    found = reader()
    ids = {split: [(e.image_id, len(e.references)) for e in found[split]] for split in SPLITS}
    assert ids == {"train": [("a.jpg", 2)], "val": [("c.jpg", 1)], "test": [("b.jpg", 1)]}
    assert "its column split" in caplog.text
    for split, image in zip(SPLITS, "cba", strict=True):
        lists[split].write_text(f"{image}.jpg\n")
    assert reader()["train"][0].image_id == "c.jpg"


def test_an_absent_file_is_told_with_those_that_are_near(tmp_path):
    (tmp_path / "Images").mkdir()
    (tmp_path / "captions.txt").touch()
    with pytest.raises(FileNotFoundError) as error:
        KarpathyReader(tmp_path / "Images", tmp_path / "Images" / "dataset.json")
    assert f"{tmp_path} has captions.txt" in explain(error.value)


def coco(folder, name, captions):
    images = [{"id": i, "file_name": f"{i}.jpg", "license": 4} for i in captions]
    pairs = [(i, text) for i, texts in captions.items() for text in texts]
    annotations = [{"id": 9, "image_id": i, "caption": text} for i, text in pairs[::-1]]
    content = {"info": {}, "images": images, "annotations": annotations}
    write_json(folder / f"{name}.json", content)
    return CocoSplit(str(folder / name), str(folder / f"{name}.json"))


def test_three_splits_of_two_files_of_coco(tmp_path):
    train = coco(
        tmp_path, "train", {1: ["A man's hat", " ... ", "Two\nCATS, here."], 2: ["A Dog."]}
    )
    cats = Reference("Two\nCATS, here.", ("two", "cats", "here"))
    hat = Reference("A man's hat", ("a", "man's", "hat"))
    first, second = Path("train", "1.jpg"), Path("train", "2.jpg")
    assert train() == [
        Example(1, tmp_path / first, (cats, hat)),
        Example(2, tmp_path / second, DOG),
    ]
    val = coco(tmp_path, "val", {3: ["a"], 4: ["b"], 5: ["c"]})
    parts = {}
    for name, ids in (("val", "5\n3\n"), ("test", "4\n")):
        (tmp_path / f"{name}.txt").write_text(ids)
        parts[name] = CocoSplit(val.root, val.annotations, tmp_path / f"{name}.txt")
    splits = CocoReader({"test": parts["test"], "train": train, "val": parts["val"]})()
    found = {name: [example.image_id for example in examples] for name, examples in splits.items()}
    assert found == {"train": [1, 2], "val": [5, 3], "test": [4]}


GERMAN = {"1.jpg": ["Ein Hip-Hop-Hund.", "..."], "2.jpg": ["Hunde"], "3.jpg": ["Hund"], "9.jpg": []}
CHINESE = {"1.jpg": ["狗。"], "2.jpg": ["两只狗"], "3.jpg": ["一只狗在跑。", "?"], "4.jpg": ["狗"]}


def test_msrvtt(tmp_path):
    names = ("train", "validate", "test")
    videos = [{"video_id": f"video{i}", "split": name, "url": ""} for i, name in enumerate(names)]
    sentences = [{"video_id": f"video{i}", "caption": "A Dog.", "sen_id": i} for i in range(3)]
    paths = [tmp_path / "first.json", tmp_path / "second.json"]
    for path, part in zip(paths, (slice(2), slice(2, 3)), strict=True):
        write_json(path, {"videos": videos[part], "sentences": sentences[part]})
    reader = MsrVttReader("clips", paths)
    found = run_reader(reader, images=False)
    assert found == {
        split: [Example(f"video{i}", Path(f"clips/video{i}"), DOG)]
        for i, split in enumerate(SPLITS)
    }
    write_json(paths[1], {"videos": videos[2:], "sentences": sentences[:1]})
    with refuses(r"sentences\[0\].*video0"):
        reader()


def test_the_photographs_of_all_languages_in_one(tmp_path):
    english = karpathy(tmp_path, [*three(), record("4.jpg", "train", imgid=4)])
    files = {code: tmp_path / f"{code}.json" for code in ("de", "zh")}
    for code, captions in {"de": GERMAN, "zh": CHINESE}.items():
        write_json(files[code], captions)
    place = str(tmp_path), english.annotations, files
    every = english()
    assert LanguagesReader(*place)() == {
        **every,
        "train": every["train"][:1],
    }  # 4.jpg has no German
    german = run_reader(LanguagesReader(*place, "de"), False, Language("de"))
    assert german["train"] == [
        Example(1, tmp_path / "1.jpg", (Reference("Ein Hip-Hop-Hund.", ("ein", "hip-hop-hund")),))
    ]
    chinese = run_reader(LanguagesReader(*place, "zh"), False, Language("zh", "characters"))
    assert chinese["test"][0].references == (Reference("一只狗在跑。", tuple("一只狗在跑")),)
    assert [[e.image_id for e in examples] for examples in chinese.values()] == [[1], [2], [3]]
    with refuses(r"language=fr.* de, zh; add data\.reader\.captions\.fr"):
        LanguagesReader(*place, "fr")
    write_json(files["zh"], {"8.jpg": ["狗"]})
    with refuses("no images for train, val, test"):
        LanguagesReader(*place, "zh")()


CAPTIONS = """\
image,caption
1.jpg,A dog runs .
2.jpg,"A ""red"" dog , running"
1.jpg,Dogs
sub/3.jpg,A cat
"4, 5.jpg",'Two' cats
"""
COLUMNS = """\
number, caption , image
0,A dog runs ., 1.jpg
1,"A ""red"" dog , running",2.jpg
2,Dogs,1.jpg
3,A cat,sub/3.jpg
4,'Two' cats,"4, 5.jpg"
"""
LISTS = {"train": "1.jpg\n4, 5.jpg\n", "val": "2.jpg\n", "test": "sub/3.jpg"}


@pytest.mark.parametrize("captions", [CAPTIONS, COLUMNS])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
def test_tables(tmp_path, captions, end):
    table = tmp_path / "captions.txt"
    table.write_text("\ufeff" + captions, encoding="utf-8", newline=end.replace("\n\n", "\n"))
    if end == "\n\n":
        table.write_bytes(table.read_bytes().replace(b"\n", b"\n\n"))
    for split, names in LISTS.items():
        (tmp_path / f"{split}.txt").write_text(names)
    if captions is CAPTIONS:  # a photograph in no split needs neither a file nor words
        table.write_bytes(table.read_bytes() + b"5.jpg,...")
    lists = {split: str(tmp_path / f"{split}.txt") for split in SPLITS}
    dogs = (Reference("A dog runs .", ("a", "dog", "runs")), Reference("Dogs", ("dogs",)))
    red = (Reference('A "red" dog , running', ("a", "red", "dog", "running")),)
    two = (Reference("'Two' cats", ("two", "cats")),)
    cat = (Reference("A cat", ("a", "cat")),)
    expected = {"train": {"1.jpg": dogs, "4, 5.jpg": two}, "val": {"2.jpg": red}}
    expected |= {"test": {"sub/3.jpg": cat}}
    assert TableReader(str(tmp_path), str(table), lists)() == {
        split: [Example(name, tmp_path / name, texts) for name, texts in examples.items()]
        for split, examples in expected.items()
    }


@pytest.mark.parametrize("count", [1, 10, 101, 1009])
def test_shares_side_by_side_are_exact_and_disjoint(count):
    images = list(range(count))
    chosen = [choose(share, images, SOURCE) for share in ((0, 0.7), (0.7, 0.8), (0.8, 1))]
    assert sorted(chain.from_iterable(chosen)) == images == choose((0, 1), images, SOURCE)
    for part, share in zip(chosen, (0.7, 0.1, 0.2), strict=True):
        assert abs(len(part) - share * count) <= 1
        assert part == sorted(part)


def test_a_share_depends_on_the_ids_and_not_on_their_order():
    # SHA-256 of "1" to "8" in hexadecimal begins 6b, d4, 4e, 4b, ef, e7, 79, 2c: 8, 4, 3 are the
    # first three
    assert choose((0, 3 / 8), [1, 2, 3, 4, 5, 6, 7, 8], SOURCE) == [3, 4, 8]
    assert choose((0, 3 / 8), list("82417653"), SOURCE) == ["8", "4", "3"]


def test_a_list_chooses_in_its_own_order_and_lines_end_with_line_feeds_alone(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_bytes(b"\xef\xbb\xbf12\r\n\r\n b c.jpg \r\n3")
    assert choose(path, [3, "b c.jpg", 7, 12], SOURCE) == [12, "b c.jpg", 3]
    path.write_bytes("\ufeffone\r\n\r\n \t\ntwo\n".encode() + "a\x85b\u2028c\x0b d\re\n".encode())
    expected = [(1, "one"), (4, "two"), (5, "a\x85b\u2028c\x0b d\re")]
    assert read_lines(path) == [(f"{path}, line {number}", line) for number, line in expected]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "photographs"
    for name in ("z.JPG", "b/a.png", "b/c.webp", "b/notes.txt", ".hidden.png", ".hidden/a.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_a_folder_with_references_of_some_and_of_others(folder):
    alone = [Example(name, folder / name, ()) for name in ("b/a.png", "b/c.webp", "z.JPG")]
    assert read_folder(folder, None) == (alone, 0)
    file = folder.parent / "captions.json"
    names = {5: "b/c.webp", 3: "c.webp", 4: "no.jpg"}
    images = [{"id": number, "file_name": name} for number, name in names.items()]
    annotations = [{"image_id": number, "caption": "A Dog."} for number in names]
    write_json(file, {"images": images, "annotations": annotations})
    expected = [alone[0], Example(5, folder / "b/c.webp", DOG), alone[2]]
    assert read_folder(folder, file) == (expected, 2)
    (folder / "empty" / ".hidden").mkdir(parents=True)
    with refuses("no photographs"):
        read_folder(folder / "empty", None)


def test_photographs_may_differ_in_case_and_suffix(tmp_path):
    """Unless two could be meant, or one by two examples."""
    for name in ("a.JPG", "b.png", "c.jpg", "c.png", "d.jpg", "notes.txt"):
        (tmp_path / name).touch()
    table, parts = tmp_path / "captions.csv", {"train": (0, 1), "val": None, "test": None}
    names = ("a.jpg", "B", "c", "d.jpg", "D", "notes")
    table.write_text("id,Caption\n" + "".join(f"{name},a dog\n" for name in names))
    reader, skipped = TableReader(tmp_path, table, parts), []
    found = run_reader(reader, skipped=skipped, needed=("train",))["train"]
    assert {e.image_id: e.path.name for e in found} == {
        "a.jpg": "a.JPG",
        "B": "b.png",
        "d.jpg": "d.jpg",
    }
    assert {str(error).split()[0].rpartition("/")[2] for error in skipped} == {"c", "D", "notes"}


def test_a_data_set_without_a_test_split(tmp_path):
    """Is read where no test is needed, from lists, a column and Karpathy's JSON."""
    table = tmp_path / "captions.csv"
    table.write_text("image,caption,Split\n1.jpg,a dog,train\n2.jpg,a cat,dev\n")
    lists = {name: tmp_path / f"{name}.txt" for name in SPLITS}
    column = TableReader(tmp_path, table, dict(lists))
    null = TableReader(tmp_path, table, lists | {"test": None})
    listed = TableReader(tmp_path, table, {name: tmp_path / f"my {name}.txt" for name in SPLITS})
    for number, name in enumerate(("train", "val"), start=1):
        (tmp_path / f"my {name}.txt").write_text(f"{number}.jpg\n")
    for reader in (column, null, listed, karpathy(tmp_path, three()[:2])):
        found = run_reader(reader, images=False, needed=("train", "val"))
        assert [len(examples) for examples in found.values()] == [1, 1, 0]
        refusal = "my test.txt" if reader is listed else "no images for test;"
        with pytest.raises((CaptioningError, FileNotFoundError), match=refusal):
            run_reader(reader, images=False)
