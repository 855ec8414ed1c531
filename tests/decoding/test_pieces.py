"""Filters of words where tokens are pieces of them."""

import numpy as np
import pytest
from pydantic import ValidationError
from refusals import refuses

from captioning.data.subwords import Subwords, build_vocabulary
from captioning.decoding import Filters
from captioning.decoding.filters import Pieces, Tokens
from captioning.runs.evaluation.searches import build_search
from captioning.tokens import EOS, NAMES

PIECES = ("", "", "", "", " a", " dog", "s", " run", " ", "dog", " do", "g", " o", "f")
A, DOG, S, RUN, BLANK, JOINED, DO, G, OH, F = range(4, 14)
WITHIN = {S, JOINED, G, F}
EVERY = set(range(len(PIECES)))
SPELT = {"a": A, "do": DO}


def forbidden(history, left=9, **settings):
    tokens = Pieces(PIECES, "en", lambda words: [SPELT[word] for word in words])
    (row,) = Filters(**settings).over(tokens).allowed([history], len(PIECES), left)
    return set(np.flatnonzero(~row))


@pytest.mark.parametrize(
    "settings, history, expected",
    [
        ({}, [A], set()),
        ({"min_length": 2}, [DOG, S], {EOS}),  # one word of two pieces
        ({"min_length": 2}, [A, DOG], set()),
        ({"no_bad_ending": True}, [DOG, OH, F], {EOS}),
        ({"no_bad_ending": True}, [OH, F, OH], set()),
        ({"forbidden": ["dog"]}, [A], {DOG}),
        ({"forbidden": ["dog"]}, [A, BLANK], {DOG, JOINED}),
        ({"forbidden": ["dog"]}, [A, DO], {DOG, G}),  # in other pieces
        ({"forbidden": ["dogs"]}, [A, DO, G], {S}),
        ({"forbidden": ["dog"]}, [], {DOG, JOINED}),
        ({"no_word_twice": True}, [A, DOG], {DOG}),
        ({"no_word_twice": True}, [DOG, S], set()),  # dogs dog
        ({"no_word_twice": True}, [DOG, DO], {DO, G}),
        ({"no_repeat_ngram": 2}, [A, DOG, RUN, A], {DOG}),
        ({"no_repeat_ngram": 2}, [A, DOG, RUN, A, DO], {G}),
        ({"no_repeat_ngram": 2}, [A, DOG, S, RUN, A, DOG], {S}),
        ({"required": ["dog", "a"]}, [DOG], {EOS}),
        ({"required": ["dog", "a"]}, [DOG, A], set()),
        ({"prefix": ["a", "do"]}, [], EVERY - {A}),
        ({"prefix": ["a", "do"]}, [A, DO], WITHIN),  # whose last word is whole
        ({"prefix": ["a", "do"]}, [A, DO, RUN], set()),
    ],
)
def test_whole_words_are_counted_and_compared(settings, history, expected):
    assert forbidden(history, **settings) == expected


@pytest.mark.parametrize(
    "settings, history, expected",
    [
        ({"no_bad_ending": True}, [DOG], {A}),
        ({"no_bad_ending": True}, [DOG, OH], {A, F}),
        ({"no_bad_ending": True}, [DOG, A], {A, BLANK, EOS}),  # "dogs as" is fine
        ({"required": ["a"]}, [DOG], EVERY - {A}),
        ({"required": ["dog"]}, [A], EVERY - {DOG}),
        ({"required": ["dog"]}, [A, DO], EVERY - {DOG, G}),
        ({"required": ["dog"]}, [A, BLANK], EVERY - {DOG, JOINED}),
        ({"required": ["dog"]}, [A, DO, G], WITHIN),  # which would make another word of it
        ({"required": ["dog", "a"]}, [], {EOS, BLANK}),  # out of reach
    ],
)
def test_the_last_piece_makes_no_bad_ending(settings, history, expected):
    assert forbidden(history, left=1, **settings) == expected


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_where_pieces_are_words_they_are_the_usual_filters(n):
    words = ["a", "dog", "runs", "the"]
    pieces = ["", "", "", "", *(f" {word}" for word in words)]
    filters = Filters(n, n, n == 2, ["runs"], ["a"], no_bad_ending=True)
    ours = filters.over(Pieces(pieces, "en", lambda texts: [4 + words.index(t) for t in texts]))
    usual = filters.over(Tokens([*NAMES, *words], "en"))
    numbers = np.random.default_rng(n)
    for length in range(6):
        history = numbers.integers(4, 8, (12, length)).tolist()
        for left in (1, 3):
            expected = usual.allowed(history, 8, left)
            assert np.array_equal(ours.allowed(history, 8, left), expected)


def test_a_search_has_them_where_ids_are_pieces():
    captions = [("a", "dog", "runs")] * 3 + [("two", "dogs", "run")]
    vocabulary = build_vocabulary(captions, 1, 30, "bpe")
    assert isinstance(vocabulary, Subwords)
    node = {"_target_": "captioning.decoding.Filters", "prefix": ["a dog"], "min_length": 4}
    node |= {"forbidden": ["zebra"], "no_bad_ending": True}
    decoding = {"_target_": "captioning.decoding.greedy", "_partial_": True, "filters": node}
    filters = build_search(decoding, vocabulary, None).keywords["filters"]
    size = len(vocabulary)
    begun = vocabulary.encode(["a", "dog"])
    for t, token in enumerate(begun):
        (row,) = filters.allowed([begun[:t]], size, 9)
        assert np.flatnonzero(row).tolist() == [token]
    (row,) = filters.allowed([begun], size, 9)
    assert not row[EOS]
    node["prefix"] = ["xylophone"]
    with refuses("does not know the word xylophone"):
        build_search(decoding, vocabulary, None)
    with pytest.raises(ValidationError, match="min_length"):
        Filters(min_length=-1)
