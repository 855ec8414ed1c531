"""The drawn data set, judged from its pictures and captions alone: by pixels, CSS colours and a
parser of its own.
"""

import re

import numpy as np
import pytest
from PIL import Image, ImageColor
from pycocoevalcap.bleu.bleu import Bleu

from captioning.data.example import Example, Reference
from captioning.data.shapes import ShapesReader, dataset
from captioning.data.shapes.scene import HELD_OUT, HELD_OUT_SHARE
from captioning.errors import CaptioningError

COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "black")
SHAPES = ("circle", "square", "triangle", "diamond", "star", "cross")
OTHER_WORDS = re.findall(
    r"\w+",
    "a an the one small large left right above below between top bottom center of on at in from to "
    "with "
    "and then there is are it its",
)
THING = re.compile(
    rf"(?:\b(?:an?|the) )?(?:\b(small|large) )?\b({'|'.join(COLOURS)}) ({'|'.join(SHAPES)})\b"
)
GOLDEN = [
    "a purple diamond above a yellow star and an orange cross",
    "a yellow star between a purple diamond and an orange cross",
    "an orange cross below a purple diamond and a yellow star",
    "between a purple diamond and an orange cross is a yellow star",
    "purple diamond then yellow star then orange cross from top to bottom",
]
SMALL = {"train": 300, "val": 60, "test": 200}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("shapes")


@pytest.fixture(scope="module")
def splits(root):
    return ShapesReader(root, **SMALL)()


@pytest.fixture(scope="module")
def examples(splits):
    return [example for split in splits.values() for example in split]


def pairs(example: Example) -> set[tuple[str, str]]:
    return {
        (found[2], found[3])
        for reference in example.references
        for found in THING.finditer(reference.text)
    }


def pixels_of(example: Example) -> np.ndarray:
    with Image.open(example.path) as picture:
        return np.asarray(picture).astype(int)


def test_five_different_captions_from_a_closed_lexicon_with_a_box_for_every_shape_word(
    splits, examples
):
    assert {name: len(split) for name, split in splits.items()} == SMALL
    assert len({example.image_id for example in examples}) == sum(SMALL.values())
    used = set()
    for example in examples:
        assert isinstance(example.image_id, int)
        assert len({reference.text for reference in example.references}) == 5
        things = set()
        for reference in example.references:
            words = reference.words
            assert reference.text == " ".join(words)
            assert len(words) <= 14
            used |= set(words)
            assert [noun.word for noun in reference.nouns] == [
                i for i, word in enumerate(words) if word in SHAPES
            ]
            things.add(
                frozenset(
                    (words[noun.word - 1], words[noun.word], noun.box) for noun in reference.nouns
                )
            )
        assert len(things) == 1  # the same box in all captions
    assert used == {*COLOURS, *SHAPES, *OTHER_WORDS}
    assert len(used) == 42


def test_boxes_colours_and_sizes_agree_with_the_pixels(examples):
    css = {name: np.array(ImageColor.getrgb(name)) for name in COLOURS}
    for example in examples:
        pixels = pixels_of(example)
        painted = np.abs(pixels - pixels[0, 0]).max(axis=2) > 40
        reference = example.references[0]
        elsewhere = painted.copy()
        for noun in reference.nouns:
            left, top, right, bottom = (112 * value for value in noun.box)
            # Nothing else is within two pixels of a box, so the window shows the thing and all of
            # it.
            rows, columns = (
                slice(int(top) - 2, int(bottom) + 3),
                slice(int(left) - 2, int(right) + 3),
            )
            window = painted[rows, columns]
            (y0, *_, y1), (x0, *_, x1) = (np.flatnonzero(window.any(axis=axis)) for axis in (1, 0))
            measured = (
                columns.start + x0,
                rows.start + y0,
                columns.start + x1 + 1,
                rows.start + y1 + 1,
            )
            # A star's or triangle's tip fades out over up to three pixels; nothing reaches a pixel
            # beyond the box.
            inset = np.array(measured) - (left, top, right, bottom)
            assert (inset * (1, 1, -1, -1) > -1).all()
            assert (inset * (1, 1, -1, -1) < 3).all()
            elsewhere[rows, columns] = False
            ink = np.median(pixels[rows, columns][window], axis=0)
            nearest = min(css, key=lambda name: float(np.linalg.norm(css[name] - ink)))
            assert reference.words[noun.word - 1] == nearest
            if len(reference.nouns) <= 2:
                said = {"small", "large"} & set(reference.words[noun.word - 2 : noun.word - 1])
                width = (right - left) / 112
                assert said == ({"small"} if width < 0.18 else {"large"} if width > 0.3 else set())
        assert not elsewhere.any()


FACT = r"(left of|right of|above|below)"
BESIDE = r"(on its left|on its right|above it|below it)"
PLACE = r"((?:at the|on the|in the) (?:top|bottom|left|right|center)(?: left| right)?)"
GRAMMAR = {
    rf"(?:there is )?#(\d)(?: is)? {FACT} #(\d)": lambda a, r, b: [(a, r, b)],
    rf"{FACT} #(\d) is #(\d)": lambda r, b, a: [(a, r, b)],
    rf"#(\d) with #(\d) {BESIDE}": lambda b, a, r: [(a, r, b)],
    rf"#(\d)(?: is)? {FACT} #(\d) and {FACT} #(\d)": lambda a, r, b, s, c: [(a, r, b), (a, s, c)],
    rf"{FACT} #(\d) and {FACT} #(\d) is #(\d)": lambda r, b, s, c, a: [(a, r, b), (a, s, c)],
    rf"#(\d) with #(\d) {BESIDE} and #(\d) {BESIDE}": lambda a, b, r, c, s: [(b, r, a), (c, s, a)],
    rf"#(\d) {FACT} #(\d) and #(\d)": lambda a, r, b, c: [(a, r, b), (a, r, c)],
    r"#(\d)(?: is)? between #(\d) and #(\d)": lambda b, a, c: [(b, "between", a, c)],
    r"between #(\d) and #(\d) is #(\d)": lambda a, c, b: [(b, "between", a, c)],
    r"#(\d) then #(\d) then #(\d) from left to right": lambda a, b, c: [
        (a, "left of", b),
        (b, "left of", c),
    ],
    r"#(\d) then #(\d) then #(\d) from top to bottom": lambda a, b, c: [
        (a, "above", b),
        (b, "above", c),
    ],
    rf"#(\d) {FACT} #(\d) and #(\d) {FACT} #(\d)": lambda a, r, b, c, s, d: [(a, r, b), (c, s, d)],
    rf"#(\d) and #(\d)(?: are)? {FACT} #(\d) and #(\d)": lambda a, b, r, c, d: [
        (a, f"wholly {r}", c),
        (a, f"wholly {r}", d),
        (b, f"wholly {r}", c),
        (b, f"wholly {r}", d),
    ],
    rf"(?:there is |one )?#(\d)(?: is)? {PLACE}": lambda a, p: [(a, p)],
    rf"{PLACE}(?: there)? is #(\d)": lambda p, a: [(a, p)],
}


def facts(reference: Reference) -> list[tuple[str, ...]]:
    mentions = iter(range(9))
    skeleton = THING.sub(lambda _: f"#{next(mentions)}", reference.text)
    readings = [
        make(*found.groups())
        for form, make in GRAMMAR.items()
        if (found := re.fullmatch(form, skeleton))
    ]
    assert len(readings) == 1, f"{reference.text!r} has {len(readings)} readings"
    return readings[0]


def holds(fact: tuple[str, ...], boxes: list[tuple[float, float, float, float]]) -> bool:
    a = boxes[int(fact[0])]
    x, y = (a[0] + a[2]) / 2, (a[1] + a[3]) / 2
    if len(fact) == 2:
        across = "left" if "left" in fact[1] else "right" if "right" in fact[1] else "middle"
        down = "top" if "top" in fact[1] else "bottom" if "bottom" in fact[1] else "middle"
        ranges = {
            "left": (0, 0.3),
            "top": (0, 0.3),
            "middle": (0.4, 0.6),
            "right": (0.7, 1),
            "bottom": (0.7, 1),
        }
        return ranges[across][0] < x < ranges[across][1] and ranges[down][0] < y < ranges[down][1]
    if fact[1] == "between":
        first, last = fact[2:]
        return any(
            holds((first, way, fact[0]), boxes) and holds((fact[0], way, last), boxes)
            for way in ("left of", "above")
        )
    b = boxes[int(fact[2])]
    across, down = (b[0] + b[2]) / 2 - x, (b[1] + b[3]) / 2 - y
    wholly = fact[1].startswith("wholly ")
    if "left" in fact[1]:
        return a[2] + 0.03 < b[0] and (wholly or across > 2 * abs(down))
    if "right" in fact[1]:
        return b[2] + 0.03 < a[0] and (wholly or -across > 2 * abs(down))
    if "above" in fact[1]:
        return a[3] + 0.03 < b[1] and (wholly or down > 2 * abs(across))
    return b[3] + 0.03 < a[1] and (wholly or -down > 2 * abs(across))


def test_every_caption_is_true_of_the_boxes(examples):
    seen = set()
    for example in examples:
        for reference in example.references:
            boxes = [noun.box for noun in reference.nouns]
            for fact in facts(reference):
                assert holds(fact, boxes), (example.path, reference.text)
                assert len(boxes) != 2 or not holds(fact, boxes[::-1])
                seen.add(fact[1])
    assert {
        "left of",
        "right of",
        "above",
        "below",
        "between",
        "on its left",
        "in the center",
    } <= seen


def test_held_out_pairs_are_absent_from_training_and_a_minority_elsewhere(splits):
    held_out = set(HELD_OUT)
    assert not any(pairs(example) & held_out for example in splits["train"])
    seen = set().union(*map(pairs, splits["train"]))
    assert seen | held_out == {(colour, shape) for colour in COLOURS for shape in SHAPES}
    for split in ("val", "test"):
        shares = [bool(pairs(example) & held_out) for example in splits[split]]
        assert HELD_OUT_SHARE / 2 < np.mean(shares) < HELD_OUT_SHARE * 2
    assert set().union(*map(pairs, splits["val"] + splits["test"])) >= held_out


def test_no_scene_is_in_two_splits_even_where_chance_would_repeat_them(tmp_path):
    def content(example):
        (noun,) = example.references[0].nouns
        left, top, right, bottom = noun.box
        return (
            *pairs(example),
            round(right - left, 2),
            int(1.5 * (left + right)),
            int(1.5 * (top + bottom)),
        )

    # One thing has 42 x 3 x 9 = 1,134 possible contents in training: 400 and 400 random ones would
    # often meet.
    splits = ShapesReader(tmp_path, train=400, val=400, test=400, max_objects=1, size=32)()
    train, val, test = (
        {content(example) for example in splits[name]} for name in ("train", "val", "test")
    )
    assert not train & test
    assert not train & val
    assert not val & test


def test_there_are_more_than_a_hundred_thousand_scenes(splits):
    corners = [
        r
        for e in splits["train"]
        for r in e.references
        if re.match(r"the .* and (above|below) the", r.text)
    ]
    ways = {
        tuple(word for word in r.words if word in ("left", "right", "above", "below"))
        for r in corners
    }
    kinds = set().union(*map(pairs, splits["train"]))
    # the training scenes with three things in a corner alone, before sizes and places
    assert 0.8 * len(ways) * len(kinds) * (len(kinds) - 1) * (len(kinds) - 2) > 1e5
    assert (len(ways), len(kinds)) == (4, 42)


def test_captions_depend_on_the_image(splits):
    test = splits["test"]
    others = test[1:] + test[:1]

    def bleu_4(judged: list[Example]) -> float:
        references = {
            i: [r.text for r in example.references[1:]] for i, example in enumerate(judged)
        }
        guesses = {i: [example.references[0].text] for i, example in enumerate(test)}
        return 100 * Bleu(4).compute_score(references, guesses, verbose=0)[0][3]

    own, shuffled = bleu_4(test), bleu_4(others)
    assert (
        own > 60
    )  # a phrasing that is never among the references: a captioner that picks one scores higher
    assert own - shuffled > 45


def drawn(example: Example) -> tuple[object, ...]:
    return example.image_id, example.references, example.path.read_bytes()


def test_same_seed_same_bytes_and_another_seed_others(tmp_path, splits):
    def all_drawn(folder: str, **more) -> list[tuple[object, ...]]:
        reader = ShapesReader(tmp_path / folder, train=12, val=6, test=6, size=48, **more)
        return [drawn(example) for split in reader().values() for example in split]

    first = all_drawn("a")
    assert all_drawn("b") == first
    assert not any(a == b for a, b in zip(first, all_drawn("a", seed=1), strict=True))
    assert sorted(reference.text for reference in splits["train"][0].references) == GOLDEN


def test_a_scene_depends_neither_on_how_many_are_asked_for_nor_on_its_size(tmp_path, splits):
    few = {"train": 10, "val": 5, "test": 5}
    usual = ShapesReader(tmp_path, **few, size=None)
    assert usual.writes_to == ShapesReader(tmp_path, **few, size=224).writes_to
    for size, reader in ((112, ShapesReader(tmp_path, **few)), (224, usual)):
        for name, split in reader().items():
            for one, other in zip(split, splits[name], strict=False):
                assert one.image_id == other.image_id
                assert [r.text for r in one.references] == [r.text for r in other.references]
                assert pixels_of(one).shape == (size, size, 3)
                assert size != 112 or drawn(one) == drawn(other)


def test_an_interrupted_drawing_leaves_nothing_that_is_served_and_damage_is_named(
    tmp_path, monkeypatch
):
    reader, draw = ShapesReader(tmp_path, train=6, val=1, test=1, size=32), dataset.draw
    for killed in (False, True):  # a killed process has no time to tidy up
        left = iter(range(4))

        def interrupted(*arguments):
            if next(left, None) is None:  # noqa: B023 - called within this turn
                raise KeyboardInterrupt
            return draw(*arguments)

        with monkeypatch.context() as patched:
            patched.setattr(dataset, "draw", interrupted)
            if killed:
                patched.setattr(dataset.shutil, "rmtree", lambda *_, **__: None)
            with pytest.raises(KeyboardInterrupt):
                reader()
        assert len(list(tmp_path.iterdir())) == killed
    assert {name: len(split) for name, split in reader().items()} == {
        "train": 6,
        "val": 1,
        "test": 1,
    }
    (reader.writes_to / "captions_test.json").write_text("{")
    with pytest.raises(CaptioningError, match=re.escape(str(reader.writes_to)) + ".*delete"):
        reader()


def test_the_slower_of_two_drawings_takes_what_the_faster_published(tmp_path, monkeypatch):
    reader = ShapesReader(tmp_path, train=3, val=1, test=1, size=32)
    draw, faster = dataset.draw, []

    def overtaken(*arguments):
        if not faster:
            faster.append(None)
            faster[0] = reader()
        return draw(*arguments)

    monkeypatch.setattr(dataset, "draw", overtaken)
    assert reader() == faster[0]
    assert list(tmp_path.iterdir()) == [reader.writes_to]
