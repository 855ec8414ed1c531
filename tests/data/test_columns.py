"""Sets that are too large for lists: the same examples as columns, kept for later processes."""

import csv
import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from refusals import refuses

from captioning.data import columns
from captioning.data.caption_words import CaptionWords, Ragged
from captioning.data.columns import FEW, Columns, RowWriter, data_digest
from captioning.data.dataset import CaptionDataset
from captioning.data.example import SPLITS, Example, Reference, reference_counts, reference_words
from captioning.data.image_files import readable
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.reading import run_reader
from captioning.data.readers.table import TableReader
from captioning.data.subwords import Subwords, build_vocabulary
from captioning.data.words import Language, split_words
from captioning.errors import CaptioningError

COUNT = FEW + 1000
SHARES = {"train": (0, 0.9), "val": (0.9, 0.95), "test": (0.95, 1)}


def captions(number):
    """Two of each image, one of which may have no word or need quotes."""
    second = ("?!", f'A "cat", number {number % 50}', "Ein Käse d’Or")[number % 3]
    return [f"Dog {number} runs, it's {number % 7}.", second + " " * 150]


def write_table(path):
    """The second captions come after all first ones."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "caption", "place"])
        for which in (0, 1):
            for number in range(COUNT):
                rows.writerow([f"{number % 3}/{number}.jpg", captions(number)[which], number % 4])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    write_table(folder / "captions.csv")
    for number in range(3):
        (folder / str(number)).mkdir()
    for number in range(COUNT):
        (folder / f"{number % 3}" / f"{number}.jpg").touch()
    return folder


def read(folder, cache=None, **options):
    table = TableReader(folder, folder / "captions.csv", SHARES)
    return run_reader(table, cache=cache, **options)


def expected(folder, number):
    texts = captions(number)
    words = [(text, split_words(text)) for text in texts]
    references = tuple(Reference(text, each) for text, each in words if each)
    name = f"{number % 3}/{number}.jpg"
    return Example(name, folder / name, references, 2 - len(references), group=str(number % 4))


def by_hand(splits):
    """The digest as it was defined for lists."""
    sha = sha256()
    for name, examples in sorted(splits.items()):
        for e in examples:
            references = [(reference.text, reference.words) for reference in e.references]
            sha.update(repr((name, e.image_id, e.path.name, references)).encode())
    return sha.hexdigest()


@pytest.fixture(scope="module")
def splits(folder):
    return read(folder, groups="place")


def test_columns_are_the_examples_of_the_file(folder, splits):
    """Shares are the images in the order of the SHA-256 of their ids."""
    names = [f"{number % 3}/{number}.jpg" for number in range(COUNT)]
    order = sorted(range(COUNT), key=lambda number: sha256(names[number].encode()).digest())
    ends = [0, round(0.9 * COUNT), round(0.95 * COUNT), COUNT]
    for name, start, end in zip(SPLITS, ends, ends[1:], strict=False):
        examples = splits[name]
        assert isinstance(examples, Columns)
        wanted = [expected(folder, number) for number in sorted(order[start:end])]
        assert list(examples) == wanted
        assert [example.wordless for example in examples] == [e.wordless for e in wanted]
        assert (examples[0], examples[-1]) == (wanted[0], wanted[-1])
        assert list(examples[5:2:-1]) == wanted[5:2:-1]
        assert list(examples[:0]) == []
        assert [*reference_words(examples)] == [*reference_words(wanted)]
        assert reference_counts(examples).tolist() == [len(e.references) for e in wanted]
    assert data_digest(splits) == by_hand(splits)


def test_what_is_kept_serves_later_processes(folder, splits, tmp_path):
    cache = tmp_path / "cache"
    first = read(folder, cache, groups="place")
    assert {name: list(each) for name, each in first.items()} == {
        name: list(each) for name, each in splits.items()
    }
    about = cache.glob("captions/*/about.json")
    written = [path.stat().st_mtime_ns for path in about]
    assert len(written) == 1
    again = read(folder, cache, groups="place")
    assert data_digest(again) == data_digest(first) == by_hand(splits)
    assert list(again["train"][:10]) == list(splits["train"][:10])
    assert [*reference_words(again["val"])] == [*reference_words(splits["val"])]
    assert [path.stat().st_mtime_ns for path in cache.glob("captions/*/about.json")] == written
    read(folder, cache, groups="place", needed=("train",))  # as an evaluation does
    assert [path.stat().st_mtime_ns for path in cache.glob("captions/*/about.json")] == written
    subset = {name: examples.take(np.arange(7)) for name, examples in again.items()}
    assert data_digest(subset) == by_hand(subset)


def test_files_that_come_or_go_are_seen(folder, splits, tmp_path):
    cache, table = tmp_path / "cache", folder / "captions.csv"
    read(folder, cache, groups="place")
    gone = folder / "0/0.jpg"
    gone.unlink()
    with refuses("1 of 21000 photographs are not on disk"):
        read(folder, cache, groups="place")
    skipped, later = [], []
    left = read(folder, cache, groups="place", skipped=skipped)
    again = read(folder, cache, groups="place", skipped=later)
    gone.touch()
    assert sum(map(len, left.values())) == COUNT - 1
    assert data_digest(again) == by_hand(left)
    assert [str(error) for error in later] == [str(error) for error in skipped]
    assert sum(map(len, read(folder, cache, groups="place", skipped=[]).values())) == COUNT
    # the table changes, but neither its size nor its time
    status, text = table.stat(), table.read_text()
    table.write_text(text.replace("Dog 7 runs", "Cat 7 runs"))
    os.utime(table, ns=(status.st_atime_ns, status.st_mtime_ns))
    changed = read(folder, cache, groups="place")
    texts = [
        reference.text for each in changed.values() for e in each for reference in e.references
    ]
    assert sum(text.startswith("Cat 7 runs") for text in texts) == 1
    table.write_text(text)


def test_other_words_and_groups_are_kept_apart(folder, tmp_path):
    cache = tmp_path / "cache"
    assert not any(example.group for example in read(folder, cache)["val"])
    words = {*read(folder, cache, language=Language("fr"))["val"].reference_words().lexicon}
    assert "d'" in words
    assert any(example.group for example in read(folder, cache, groups="place")["val"])
    assert len(list(cache.glob("captions/*/about.json"))) == 3


class Tried:
    """Reads no file but notes its name; one cannot be read."""

    def __init__(self):
        self.names = []

    def read(self, source):
        self.names.append(source.name)
        if source.name == "5.jpg":
            raise CaptioningError("5.jpg is broken")


def test_photographs_of_a_kept_set_are_tried_once_until_files_come(folder, tmp_path):
    def tried():
        transform, found = Tried(), read(folder, tmp_path, groups="place")
        left = readable(found, transform, tmp_path / "photographs", skip_broken=True)
        assert sum(map(len, found.values())) - sum(map(len, left.values())) == 1
        assert all(
            example.path.name != "5.jpg" for examples in left.values() for example in examples
        )
        return sorted(transform.names)

    every = sorted(f"{number}.jpg" for number in range(COUNT))
    assert tried() == every
    assert tried() == ["5.jpg"]  # which may have been repaired
    new = folder / "0/new.jpg"
    new.touch()
    assert tried() == every
    new.unlink()


def test_ids_of_pieces_are_kept_for_later_processes(folder, tmp_path, monkeypatch):
    train = read(folder, tmp_path, groups="place")["train"]
    captions = CaptionWords.of(reference_words(train))
    vocabulary = build_vocabulary(captions, subwords="bpe", max_size=60)

    def dataset(examples):
        return CaptionDataset(examples, None, vocabulary, 30, 5, True)

    def ids(one):
        return [*one._ids]

    expected = [tuple(vocabulary.encode(words)) for words in captions]
    assert ids(dataset(train)) == expected
    part = dataset(train.take(np.arange(7)))
    assert ids(part) == expected[: reference_counts(train)[:7].sum()]
    monkeypatch.setattr(Subwords, "encode_all", None)  # not called again
    again = read(folder, tmp_path, groups="place")["train"]
    assert ids(dataset(again)) == expected
    for file in tmp_path.rglob("values.npy"):
        file.write_bytes(file.read_bytes()[:-9])
        with refuses(str(file.parent)):
            dataset(again)


def test_damage_and_killed_writers_are_not_read(folder, splits, tmp_path):
    cache = tmp_path / "cache"
    read(folder, cache)
    (about,) = cache.glob("captions/*/about.json")
    about.write_text(about.read_text()[:-5])
    assert data_digest(read(folder, cache)) == data_digest(splits)
    (about.parent / "train/words.npy").write_bytes(b"")
    assert data_digest(read(folder, cache)) == data_digest(splits)
    about.unlink()  # a writer that was killed renames nothing
    assert data_digest(read(folder, cache)) == data_digest(splits)


PROGRAM = """
import resource, sys
from pathlib import Path
from test_columns import data_digest, read
if sys.argv[3:]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
print(data_digest(read(Path(sys.argv[1]), Path(sys.argv[2]))))
"""


def start(*arguments):
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    where = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=where, text=True, **pipes)


def test_processes_at_once_keep_one_set(folder, splits, tmp_path):
    started = [start(folder, tmp_path) for _ in range(3)]
    told = [process.communicate() for process in started]
    assert [digest.strip() for digest, _ in told] == [data_digest(splits)] * 3, told
    assert len(list(tmp_path.glob("captions/*/about.json"))) == 1
    assert len(list(tmp_path.glob("captions/*"))) == 2  # with the lock


def test_a_full_disk_is_named_and_nothing_is_left_of_it(folder, splits, tmp_path):
    process = start(folder, tmp_path, 2**20)
    told = process.communicate()[1]
    assert process.returncode
    assert "cannot write" in told
    assert not list(tmp_path.glob("captions/*/about.json"))
    assert data_digest(read(folder, tmp_path)) == data_digest(splits)


def test_lists_of_a_json_file_are_kept_too(tmp_path):
    """Tokens that are not those of the text, and captions without any."""
    images = [
        {
            "filename": f"{number}.jpg",
            "imgid": number,
            "split": ("train", "val", "test")[number % 3],
            "sentences": [
                {"raw": "A Dog." + " " * 150, "tokens": ["one", "dog"]},
                {"raw": "?"},
            ],
        }
        for number in range(COUNT)
    ]
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"images": images}))
    reader = KarpathyReader(tmp_path, file)
    lists = reader()
    for _ in range(2):
        given = run_reader(reader, images=False, cache=tmp_path / "cache")
        assert isinstance(given["train"], Columns)
        assert {name: list(examples) for name, examples in given.items()} == lists
        assert data_digest(given) == by_hand(lists)


def without_cats(text):
    if "cat" in text:
        raise ValueError("a cat")
    return text.split()


def test_a_row_whose_words_cannot_be_had_leaves_nothing_behind(tmp_path):
    table = tmp_path / "captions.csv"
    table.write_text("image,caption\n1.jpg,a dog\n2.jpg,a cat\n3.jpg,two birds\n")
    reader = TableReader(tmp_path, table, {"train": (0, 1), "val": None, "test": None})
    words, skipped = Language("en", "test_columns.without_cats"), []
    found = run_reader(reader, False, words, skipped, needed=("train",))["train"]
    told = {example.image_id: example.references[0].words for example in found}
    assert told == {"1.jpg": ("a", "dog"), "3.jpg": ("two", "birds")}
    assert len(skipped) == 1


def test_small_sets_and_readers_of_ones_own_are_lists(folder, tmp_path):
    table = tmp_path / "captions.csv"
    table.write_text(
        "image,caption\n" + "".join(f"{n}.jpg,A dog {'x' * 600}\n" for n in range(9000))
    )
    reader = TableReader(tmp_path, table, SHARES)
    splits = run_reader(reader, images=False, cache=tmp_path / "cache")
    assert all(isinstance(examples, list) for examples in splits.values())
    own = run_reader(lambda: splits, images=False, cache=tmp_path / "cache")
    assert own is splits
    assert not list(tmp_path.glob("cache/captions/*/about.json"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an open file
def test_rows_are_read_from_disk_as_from_memory(monkeypatch):
    """Here 100 bytes are many; what was added last has not been written yet."""
    monkeypatch.setattr(columns, "IN_MEMORY", 100)
    rows = RowWriter("/images")
    for number in range(20):
        rows.add(number, [f"{number}.jpg"], [f"Dog {number} runs."])
    rows.finish()  # readers finish once for each split
    assert list(rows.finish()[:0]) == []
    for number, example in enumerate(rows.finish()):
        words = ("dog", str(number), "runs")
        references = (Reference(f"Dog {number} runs.", words),)
        assert example == Example(number, Path(f"/images/{number}.jpg"), references)


def test_ragged_lists_are_taken_in_any_order():
    lists = [[4, 5], [], [6], [7, 8, 9], []]
    starts = np.cumsum([0, *map(len, lists)])
    ragged = Ragged(np.concatenate(lists).astype(np.int32), starts)
    for chosen in ([3, 0, 1, 3], [], [4], range(5)):
        taken = ragged.take(np.array(chosen, np.int64))
        pieces = np.split(taken.values, taken.starts[1:-1]) if len(taken) else []
        assert [piece.tolist() for piece in pieces] == [lists[number] for number in chosen]
