"""Statistics of wording, counted by hand."""

import random
from itertools import pairwise

import pytest

from captioning.data import caption_words
from captioning.metrics.wording import (
    TrainingCaptions,
    caption_statistics,
    commonest_caption,
    wording,
)


def split(*captions):
    return [caption.split() for caption in captions]


def test_of_three_captions():
    captions = split("a dog on a", "a dog runs", "dogs")
    assert wording(captions) == {
        "bad_endings": pytest.approx(100 / 3),
        "repeated": 0,
        "length": pytest.approx(8 / 3),
        "distinct-1": 100 * 5 / 8,  # a, dog, on, runs, dogs
        "distinct-2": 100 * 4 / 5,  # "a dog" twice
        "vocabulary used": 5,
        "different captions": 3,
    }
    repeated = split("a dog dog runs", "dogs and dogs", "a a", "the dog the dog")
    assert wording(repeated)["repeated"] == 50
    nothing = wording([(), ()])
    assert nothing.pop("different captions") == 1
    assert set(nothing.values()) == {0}


@pytest.mark.parametrize(
    "same, images, among_references, warns",
    [
        (4, 9, 0, True),
        (3, 9, 0, False),  # a third, and no more
        (2, 3, 0, False),  # a trial of three images
        (0, 0, 0, False),
        (4, 9, 2, False),  # as where a data set repeats itself: no more than twice its share there
        (4, 9, 1, True),
    ],
)
def test_a_captioner_that_has_collapsed(same, images, among_references, warns):
    captions = ["A dog runs."] * same + [f"caption {i}" for i in range(images - same)]
    references = [[f"reference {i}"] for i in range(images)]
    references[:among_references] = [["a dog runs"]] * among_references
    told = commonest_caption(captions, references)
    assert told == ("4 of 9 captions are the same: a dog runs" if warns else None)


def test_captions_without_words_are_told_as_such():
    assert commonest_caption(["", "...", "\U0001f415"], [["a dog"]]).endswith(": (no words)")


def test_beside_the_captions_of_training():
    training = TrainingCaptions([("a", "dog", "runs", "by"), ("dogs",), ("by", "a", "bus")])
    said = split(
        "dogs",
        "a dog runs by a bus",
        "a dog by a bus stop",
        "a dog runs by",
        "bus a dog by",
        "a cat",
        "",
    )
    # unseen: "bus a" and "dog by" of 3, "a cat" of 1; "dog by" and "bus stop" of 5 are 40 % and no
    # more
    assert training.compared(said) == {
        "novel": pytest.approx(100 * 5 / 7),
        "unseen pairs": pytest.approx(100 * 2 / 7),
    }


def test_captions_of_training_in_several_parts_are_compared_as_sets(monkeypatch):
    monkeypatch.setattr(caption_words, "PART", 7)
    draw = random.Random(0)

    def drawn(count, words):
        # few words, so that many captions have the same ones at other places
        return [tuple(draw.choices(words, k=draw.randint(0, 5))) for _ in range(count)]

    known, said = drawn(100, "abc"), drawn(300, "abc") + drawn(50, "abcde")
    pairs = {pair for caption in known for pair in pairwise(caption)}
    unseen = [[pair not in pairs for pair in pairwise(caption)] for caption in said]
    expected = {
        "novel": 100 * sum(caption not in known for caption in said) / 350,
        "unseen pairs": 100 * sum(sum(new) > 0.4 * len(new) for new in unseen) / 350,
    }
    assert min(expected.values()) > 5
    assert TrainingCaptions(known).compared(said) == pytest.approx(expected)
    nothing = {"novel": 100.0, "unseen pairs": 0.0}
    assert TrainingCaptions([]).compared([()]) == nothing
    assert TrainingCaptions([("a",)]).compared([(), ()]) == nothing


def test_of_a_model_with_and_without_the_captions_of_training():
    words = split("a dog dog", "a dog")
    searched = [True, False], [[2.0, 1.0, 0.0, 1.0], [4.0, 1.0]]
    alone = caption_statistics(words, *searched, None)
    expected = {
        "repeated": 50,
        "length": 2.5,
        "ended": 50,
        "first word entropy": 3,
        "word entropy": 1.5,
    }
    assert alone == wording(words) | expected
    beside = caption_statistics(words, *searched, TrainingCaptions([("a", "dog")]))
    assert beside == alone | {
        "novel": 50,
        "unseen pairs": 50,
    }  # "dog dog" is half of the first's pairs
