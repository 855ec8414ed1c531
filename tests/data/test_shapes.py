"""The drawn data set, judged from its pictures and captions alone: by pixels, CSS colours and a
parser of its own.
"""

import re

import numpy as np
import pytest
from PIL import Image, ImageColor
from refusals import refuses

from captioning.data.shapes import ShapesReader, dataset
from captioning.data.shapes.scene import HELD_OUT, HELD_OUT_SHARE
from experiments.scenes.parsing import parse

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


def pairs(example):
    return {
        (found[2], found[3])
        for reference in example.references
        for found in THING.finditer(reference.text)
    }


def pixels_of(example):
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


def holds(a, direction, b):
    """Whether a box is wholly on that side of another."""
    return {
        "left": a[2] + 0.03 < b[0],
        "right": b[2] + 0.03 < a[0],
        "above": a[3] + 0.03 < b[1],
        "below": b[3] + 0.03 < a[1],
    }[direction]


def test_every_caption_is_true_of_the_boxes(examples):
    for example in examples:
        for reference in example.references:
            boxes, said = [noun.box for noun in reference.nouns], parse(reference.text)
            assert not said.strange
            assert len(said.things) == len(boxes)
            assert said.statements or said.locations
            for statement in said.statements:
                ways = [[holds(boxes[a], d, boxes[b]) for a, d, b in way] for way in statement]
                assert sum(map(all, ways)) == 1, (example.path, reference.text)
            for thing, place in said.locations:
                left, top, right, bottom = boxes[thing]
                for low, high, first, last in (
                    (left, right, "left", "right"),
                    (top, bottom, "top", "bottom"),
                ):
                    middle = (low + high) / 2
                    assert (middle < 0.3) == (first in place)
                    assert (middle > 0.7) == (last in place)


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


def drawn(example):
    return example.image_id, example.references, example.path.read_bytes()


def test_same_seed_same_bytes_and_another_seed_others(tmp_path, splits):
    def all_drawn(folder, **more):
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
    reader, draw = ShapesReader(tmp_path, train=6, val=1, test=1, size=32), dataset.draw_scene
    left = iter(range(4))

    def interrupted(*arguments):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return draw(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(dataset, "draw_scene", interrupted)
        with pytest.raises(KeyboardInterrupt):
            reader()
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    assert [len(split) for split in reader().values()] == [6, 1, 1]
    (reader.writes_to / "captions_test.json").write_text("{")
    with refuses(re.escape(str(reader.writes_to)) + ".*delete"):
        reader()
