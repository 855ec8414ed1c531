"""Statistics of wording, counted by hand."""

import pytest

from captioning.metrics.wording import ended, novel, wording


def test_of_three_captions() -> None:
    assert wording(["a dog on a", "a dog runs", "dogs"]) == {
        "bad_endings": pytest.approx(100 / 3),
        "length": pytest.approx(8 / 3),
        "distinct-1": 100 * 5 / 8,  # a, dog, on, runs, dogs
        "distinct-2": 100 * 4 / 5,  # "a dog" twice
        "vocabulary used": 5,
    }
    assert ended([True, True, False, True]) == {"ended": 75}
    assert novel(["a dog on a", "dogs"], {"dogs", "a dog"}) == {"novel": 50}


def test_of_captions_without_words() -> None:
    assert set(wording(["", ""]).values()) == {0}
