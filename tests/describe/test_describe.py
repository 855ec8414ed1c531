"""A data set described: numbers by hand, each fault planted and found where it is, and a clean set
without any.
"""

import random
import re
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from json_files import read_json
from PIL import ExifTags, Image
from support import QUIET

from captioning.data.example import Example, Noun, Reference
from captioning.data.vocabulary import Vocabulary
from captioning.data.words import split_words
from captioning.describe.__main__ import main
from captioning.describe.captions import describe_captions
from captioning.describe.findings import find_in_texts, find_problems
from captioning.describe.images import describe_images

pytestmark = QUIET
CLEAN = {
    "train": [
        ["a dog runs", "the dog is on a ball"],
        ["a red ball", "the ball is red"],
        ["a cat runs", "the cat is red"],
    ],
    "val": [["a red dog", "the dog is red"]],
    "test": [["a red cat", "the cat is on a ball"]],
}
SIZES = ("constant", "tiny")
FIRST = CLEAN["train"][0][0]
ONE_BOX = Noun(1, (0.1, 0.1, 0.5, 1.0))


def photograph(path, seed, size=(64, 48)):
    """A smooth picture, which looks the same in all sizes."""
    draw = random.Random(seed)
    coarse = Image.frombytes("RGB", (4, 4), draw.randbytes(48))
    picture = coarse.resize(size, Image.Resampling.BICUBIC)
    picture.save(path)
    return picture


def write(root, texts=CLEAN, size=None):
    """A table with its lists of splits, and photographs of several sizes unless `size` is given."""
    (root / "images").mkdir(parents=True)
    rows = ["image\tcaption"]
    for split, images in texts.items():
        names = [f"{split}{number}.jpg" for number in range(len(images))]
        (root / f"{split}.txt").write_text("\n".join(names))
        for name, captions in zip(names, images, strict=True):
            rows += [f"{name}\t{caption}" for caption in captions]
            photograph(root / "images" / name, len(rows), size or (60 + len(rows), 48))
    (root / "captions.txt").write_text("\n".join(rows))
    return root


@pytest.fixture
def described(elsewhere, printed):
    """Prints and records what there is in `data`."""

    def run(*settings):
        text = printed(main, "data=csv", "data.root=data", "data.vocabulary.min_count=2", *settings)
        record = elsewhere / text.splitlines()[-1]  # of each call in a folder of its own
        return text, read_json(record)

    return run


def shown_pairs(page):
    """The pictures side by side in each figure of a page."""
    figures = re.findall("<figure><img.*?</figure>", Path(page).read_text())
    pairs = [re.findall(r"data:image/jpeg;base64,([^\"]+)", figure) for figure in figures]
    return [[Image.open(BytesIO(b64decode(text))) for text in pair] for pair in pairs]


def where(findings):
    """Findings by kind, without those of the sizes of splits, which are tiny here."""
    return {each["kind"]: each["where"] for each in findings if each["kind"] not in SIZES}


def test_a_clean_set_has_no_findings_and_its_numbers_are_as_by_hand(described, elsewhere):
    write(elsewhere / "data")
    _, record = described()
    assert {each["kind"]: each["where"] for each in record["findings"]} == {
        "constant": ["val", "test"]
    }
    _, record = described("data.max_words=5")
    described("images=false")
    assert {path.name for path in elsewhere.glob("describe*")} == {
        "describe",
        "describe-2",
        "describe-3",
    }
    assert where(record["findings"]) == {"long": []}
    names = ("photographs", "captions", "longer than max_words", "also in training")
    splits = record["splits"]
    assert {split: [counts[name] for name in names] for split, counts in splits.items()} == {
        "all": [5, 10, 2, None],
        "train": [3, 6, 1, None],
        "val": [1, 2, 0, 0],
        "test": [1, 2, 1, 0],
    }
    every = record["splits"]["all"]
    assert every["words per caption"] == [3, 3, 3, 6, 6]
    assert every["lengths"] == {"0": 0, "1": 0, "2": 0, "3": 5, "4": 3, "5": 0, "6": 2}
    unknown = [counts["unknown words"] for counts in record["splits"].values()]
    assert unknown == [2 / 39, 1 / 23, 0, 1 / 9]
    words = record["words"]
    assert [words[name] for name in ("known", "different", "once", "unknown")] == [8, 9, 1, ["on"]]
    assert words["frequent"][:1] == [["a", 4]]
    photographs = record["photographs"]
    assert (photographs["read"], photographs["formats"]) == (5, {"JPEG": 5})
    assert photographs["longer side"] == [63, 63, 67, 71, 71]
    page = (elsewhere / "describe" / "index.html").read_text()
    assert "src=" not in page  # self-contained
    assert "href=" not in page


def test_small_splits_are_found_and_large_ones_are_not(described, elsewhere):
    """CIDEr of one photograph, or of several with the same captions, is 0 whatever is generated."""
    words = ["a", "red", "dog", "is", "on", "the", "ball", "cat"]
    every = [[" ".join(random.Random(i + n).sample(words, 8)) for n in (0, 99)] for i in range(100)]
    write(elsewhere / "data", CLEAN | {"val": every[:50], "test": every[50:]})
    text, record = described()
    assert text.startswith("csv in data: nothing to look at\n")
    assert record["findings"] == []
    (elsewhere / "data" / "val.txt").write_text("\n".join(f"val{i}.jpg" for i in range(49)))
    (elsewhere / "data" / "test.txt").write_text("test7.jpg")
    _, record = described("images=false")
    kinds = {each["kind"]: each["where"] for each in record["findings"]}
    assert kinds == {"constant": ["test"], "tiny": ["val: 49"]}


PLANTED = [
    ("unsplit", ["穿着连衣裙的小女孩。", "走上小屋的女孩。", "两只狗在路上打架。"]),
    ("short", ["a dog"]),
    ("lists", ["['a dog runs', 'the dog is red']", '["a dog runs"]']),
    ("markup", ["a <b>dog</b> runs"]),
    ("markup", [r"a dog\nruns and runs"]),
    ("damaged letters", ["a dog in a caf\u00c3\u00a9"]),
    ("decomposed", ["a dog in a cafe\u0301"]),
    ("mixed alphabets", ["a \u0441at runs"]),
    ("twice", ["a blue cat", "A blue cat!"]),
]


def found(texts, nouns=(), tokens=False, images=Path(), drawn=None):
    """Findings about captions, whose words are split at blanks if they are `tokens`, and about
    photographs unless it is None whether they are `drawn`.
    """
    split = str.split if tokens else split_words
    splits = {}
    for name, captions in texts.items():
        references = [
            tuple(Reference(t, tuple(split(t)), nouns) for t in each) for each in captions
        ]
        paths = [images / f"{name}{number}.jpg" for number in range(len(captions))]
        splits[name] = list(map(Example, range(len(captions)), paths, references))
    training = [reference.words for example in splits["train"] for reference in example.references]
    vocabulary = Vocabulary.from_captions(training, 1)
    numbers, places = describe_captions(splits, vocabulary, 14, Path.cwd())
    numbers |= {"settings": {"max_words": 14, "language": "en"}, "photographs": {}}
    if drawn is not None:
        numbers["photographs"], more, _ = describe_images(splits, images, drawn)
        places |= more
    ignored = ("unknown", *SIZES)
    findings = find_problems(numbers, places)
    return {each.kind: each.where for each in findings if each.kind not in ignored}


@pytest.mark.parametrize("kind, captions", PLANTED)
def test_each_fault_of_captions_is_found_where_it_is(kind, captions):
    assert found(CLEAN) == {}
    places = found(CLEAN | {"train": [*CLEAN["train"], captions]})
    assert list(places) == [kind]
    for place in places[kind]:
        assert place in {"\u0441at", *(f"train3.jpg: {caption}" for caption in captions)}
    assert len(places[kind]) == (0 if kind == "twice" else len(captions))


def test_texts_to_be_scored_may_have_no_word():
    (told,) = find_in_texts(["a dog", "\U0001f415\U0001f3d6\ufe0f", "... !", "狗", "42"])
    assert "2 of 5" in told
    assert "\U0001f415" in told


def test_faults_of_many_captions():
    """Words in two spellings, one sentence for many photographs, copied test captions, one
    reference.
    """
    assert list(found(CLEAN | {"train": [["ein Hund rennt", "a dog runs"]]})) == ["not English"]
    assert found(CLEAN | {"train": [["A dog runs", "a dog is red"]]}, tokens=True) == {
        "capital letters": ["A, a"]
    }
    many = [["there is no caption", f"a dog {'runs ' * (1 + n)}"] for n in range(12)]
    assert list(found(CLEAN | {"train": many})) == ["same caption"]
    assert list(found(CLEAN | {"test": [[FIRST, "the cat is on a ball"]]})) == ["copied"]
    assert list(found(CLEAN | {"test": [["a red cat"]]})) == ["one reference"]
    long = [["a dog runs", "a dog " + "runs and " * 10]]
    assert list(found(CLEAN | {"train": long})) == ["long"]
    assert found(CLEAN | {"train": [["a dog runs"], long[0][1:]]}) == {
        "left out": ["train1.jpg"],
        "long": [],
    }


@pytest.mark.parametrize(
    "noun",
    [Noun(1, (0.5, 0.1, 0.5, 0.5)), Noun(1, (0.5, 0.1, 1.2, 0.5)), Noun(9, (0.1, 0.1, 0.5, 0.5))],
)
def test_broken_boxes(noun):
    assert found(CLEAN, (ONE_BOX,)) == {}
    places = found(CLEAN, (ONE_BOX, noun))
    assert list(places) == ["boxes"]
    assert len(places["boxes"]) == 10
    assert places["boxes"][0] == f"train0.jpg: {FIRST}"


def test_each_fault_of_photographs_is_found_where_it_is(described, elsewhere):
    texts = CLEAN | {
        "train": [[f"a dog {'runs ' * n}", f"the cat {'is red ' * n}"] for n in range(1, 7)]
    }
    texts["train"].append([*texts["train"][0][:1], "...", ""])
    images = write(elsewhere / "data", texts) / "images"
    (images / "train0.jpg").write_bytes((images / "train0.jpg").read_bytes()[:-200])
    (images / "train1.jpg").unlink()
    (images / "test0.jpg").write_bytes((images / "train2.jpg").read_bytes())
    (images / "train3.jpg").write_bytes((images / "train4.jpg").read_bytes())
    small = photograph(images / "train5.jpg", 99).resize((32, 24))
    turn = Image.Exif()
    turn[ExifTags.Base.Orientation] = 6
    small.transpose(Image.Transpose.ROTATE_90).save(images / "val0.jpg", exif=turn, quality=60)
    Image.open(images / "train6.jpg").convert("L").convert("CMYK").save(images / "train6.jpg")
    text, record = described("data.max_words=20")
    places = where(record["findings"])
    (broken,) = places.pop("broken")
    assert places.pop("unknown") == []  # "a red dog" of validation
    assert "images/train0.jpg: OSError: image file is truncated" in broken
    assert places == {
        "missing": ["train images/train1.jpg"],
        "copies between splits": ["train images/train2.jpg = test images/test0.jpg"],
        "alike between splits": ["train images/train5.jpg = val images/val0.jpg"],
        "wordless": [],
        "copies within a split": ["train images/train3.jpg = train images/train4.jpg"],
    }
    assert "check   captions without a word: 2. " in text
    assert [[image.size for image in pair] for pair in shown_pairs("describe/index.html")] == [
        [(67, 48), (67, 48)],
        [(64, 48), (32, 24)],  # upright
        [(71, 48), (71, 48)],
    ]
    numbers = record["photographs"]
    assert (numbers["read"], numbers["modes"]) == (7, {"RGB": 6, "CMYK": 1})
    assert (numbers["turned by EXIF"], numbers["without colour"]) == (1, 1)
    assert "32 x 24" in dict(numbers["sizes"])  # upright
    assert text.splitlines()[1].startswith("serious ")
    captions = elsewhere / "data" / "captions.txt"
    captions.write_text(f"{captions.read_text()}\ntrain2.jpg\n")
    _, record = described("data.max_words=20", "images=false")
    skipped, *others = where(record["findings"]).items()
    assert skipped[0] == "skipped"
    assert [kind for kind, _ in others] == ["unknown", "wordless"]


def test_the_first_of_many_pairs_are_shown_small(described, elsewhere):
    texts = CLEAN | {"train": [[f"a dog {'runs ' * n}"] for n in range(10)]}
    images = write(elsewhere / "data", texts, (600, 300)) / "images"
    for number in range(1, 10):
        photograph(images / f"train{number}.jpg", 0, (600 - 2 * number, 300))
    _, record = described()
    assert len(where(record["findings"])["alike within a split"]) > 8
    pairs = shown_pairs("describe/index.html")
    assert len(pairs) == 8
    for one, other in pairs:
        assert max(*one.size, *other.size) == 200
        other = np.float32(other.resize(one.size))
        assert np.abs(np.float32(one) - other).mean() < 8  # of 255


@pytest.mark.parametrize(
    "values, advice", [((31_000, 33_000), "[31000,33000]"), ((0, 40_000), ""), ((7, 7), "")]
)
def test_sixteen_bits_of_which_a_part_is_used(values, advice, described, elsewhere):
    root = write(elsewhere / "data")
    for number, file in enumerate(sorted((root / "images").iterdir())):
        levels = np.linspace(*values, 48 * (60 + number)).astype(np.uint16)
        Image.fromarray(levels.reshape(48, -1)).save(file, "PNG")
    text, record = described()
    assert len(where(record["findings"]).get("16 bits", [])) == (5 if advice else 0)
    told = f"set backbone.pixel_range={advice}."
    assert (told in " ".join(text.split())) is bool(advice)


@pytest.mark.parametrize(
    "size, drawn, kinds",
    [((48, 48), False, ["squashed"]), ((48, 48), True, []), ((64, 48), False, [])],
)
def test_photographs_of_one_size(size, drawn, kinds, tmp_path):
    root = write(tmp_path / "data", size=size)
    assert list(found(CLEAN, images=root / "images", drawn=drawn)) == kinds


def test_captions_that_give_no_vocabulary_are_described_with_the_reason(described, elsewhere):
    """As with a language without blanks, of which every caption is one word."""
    training = ["穿着连衣裙的小女孩。", "走上小屋的女孩们。", "两只狗在路上打架。"]
    others = {"val": [["花狗和黑狗要打架。"]], "test": [["一个小男孩在草地上。"]]}
    write(elsewhere / "data", {"train": [[text] for text in training], **others})
    text, record = described("images=false")
    assert list(where(record["findings"])) == [
        "no vocabulary",
        "unsplit",
        "not English",
        "one reference",
    ]
    assert (
        "none of the 3 different words of the training captions occurs min_count=2 times"
        in " ".join(text.split())
    )


def test_what_a_stranger_has_written_is_text_on_the_page(described, elsewhere):
    write(elsewhere / "data", CLEAN | {"val": [["a <img src=x> dog runs", "a\x1b[31m dog runs"]]})
    text, _ = described()
    assert "\x1b" not in text
    page = (elsewhere / "describe" / "index.html").read_text()
    assert "<img" not in page
    assert "a &lt;img src=x&gt; dog runs" in page


@pytest.mark.parametrize(
    "setting", ["images=maybe", "data.max_words=0", "data.vocabulary.min_cuont=2", "output="]
)
def test_refused(setting, elsewhere, refused):
    write(elsewhere / "data")
    assert setting.partition("=")[0] in refused(main, "data=csv", "data.root=data", setting)
