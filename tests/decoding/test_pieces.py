"""Filters of words where tokens are pieces of them."""

import pytest
import torch
from pydantic import ValidationError
from refusals import refuses

from captioning.data.subwords import Subwords, build_vocabulary
from captioning.decoding import Filters, PieceFilters
from captioning.runs.evaluation.searches import build_search
from captioning.tokens import EOS

PIECES = ("", "", "", "", " a", " dog", "s", " run", " ", "dog", " do", "g")
A, DOG, S, RUN, BLANK, JOINED, DO, G = range(4, 12)
WORDS = {A, DOG, RUN, BLANK, DO}
"""The ids that begin a word, or from which one can begin."""


def forbidden(history, **settings):
    filters = PieceFilters(PIECES, **settings)
    given = filters(torch.zeros(1, 1, len(PIECES)), torch.tensor([[history]]).long())
    return {i for i, value in enumerate(given[0, 0].tolist()) if value == -torch.inf}


@pytest.mark.parametrize(
    "settings, history, expected",
    [
        ({}, [A], set()),
        ({"min_length": 2}, [DOG, S], {EOS}),  # one word of two pieces
        ({"min_length": 2}, [A, DOG], set()),
        ({"no_bad_ending": ["a", "dogs"]}, [A, DOG, S], {EOS}),
        ({"no_bad_ending": ["a", "dogs"]}, [A, DOG], set()),
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
        ({"prefix": [A, DO]}, [], set(range(len(PIECES))) - {A}),
        ({"prefix": [A, DO]}, [A, DO], {S, JOINED, G}),  # whose last word is whole
        ({"prefix": [A, DO]}, [A, DO, RUN], set()),
    ],
)
def test_whole_words_are_counted_and_compared(settings, history, expected):
    assert forbidden(history, **settings) == expected


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_where_pieces_are_words_they_are_the_usual_filters(n):
    words = ["a", "dog", "runs", "the"]
    pieces = ["", "", "", "", *(f" {word}" for word in words)]
    common = {"no_repeat_ngram": n, "no_word_twice": n == 2, "min_length": n}
    usual = Filters(forbidden=[6], prefix=[4], no_bad_ending=[7], **common)
    ours = PieceFilters(pieces, forbidden=["runs"], prefix=[4], no_bad_ending=["the"], **common)
    torch.manual_seed(n)
    for length in range(6):
        history = torch.randint(4, 8, (3, 4, length))
        log_probs = torch.randn(3, 4, 8)
        assert torch.equal(ours(log_probs, history), usual(log_probs, history))


def test_a_search_has_them_where_ids_are_pieces():
    captions = [("a", "dog", "runs")] * 3 + [("two", "dogs", "run")]
    vocabulary = build_vocabulary(captions, 1, 30, "bpe")
    assert isinstance(vocabulary, Subwords)
    node = {"_target_": "captioning.decoding.Filters", "prefix": ["a dog"], "min_length": 4}
    node |= {"forbidden": ["zebra"], "no_bad_ending": True}
    decoding = {"_target_": "captioning.decoding.greedy", "_partial_": True, "filters": node}
    filters = build_search(decoding, vocabulary, None).keywords["filters"]
    assert isinstance(filters, PieceFilters)
    assert filters.prefix == vocabulary.encode(["a", "dog"])
    assert filters.forbidden == ["zebra"]
    assert "of" in filters.no_bad_ending
    node["prefix"] = ["xylophone"]
    with refuses("does not know the word xylophone"):
        build_search(decoding, vocabulary, None)
    with pytest.raises(ValidationError, match="min_length"):
        PieceFilters(PIECES, min_length=-1)
