"""Settings that searches and filters refuse."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from toys import pictures, table

from captioning.decoding import Filters, beam_search, diverse_beam_search, greedy, sample

TOY = table(0), pictures([0])


@pytest.mark.parametrize(
    ("search", "settings", "key"),
    [
        (greedy, {"max_length": 0}, "max_length"),
        (beam_search, {"width": 0}, "width"),
        (beam_search, {"width": True}, "width"),
        (beam_search, {"length_penalty": float("nan")}, "length_penalty"),
        (beam_search, {"normalisation": "words"}, "normalisation"),
        (beam_search, {"width": 2, "n_best": 3}, "n_best"),
        (diverse_beam_search, {"groups": 0}, "groups"),
        (diverse_beam_search, {"diversity": -0.5}, "diversity"),
        (diverse_beam_search, {"width": 5, "groups": 2}, "width"),
        (sample, {"n": 0}, "n"),
        (sample, {"temperature": 0.0}, "temperature"),
        (sample, {"temperature": float("nan")}, "temperature"),
        (sample, {"top_k": 0}, "top_k"),
        (sample, {"top_p": 0.0}, "top_p"),
        (sample, {"top_p": 1.5}, "top_p"),
        (partial(Filters), {"min_length": -1}, "min_length"),
        (partial(Filters), {"no_repeat_ngram": -1}, "no_repeat_ngram"),
        (partial(Filters), {"no_word_twice": 1}, "no_word_twice"),
        (partial(Filters), {"prefix": ["a"]}, "prefix"),
    ],
)
def test_refused(search: Callable[..., Any], settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=rf"(?m)^{key}\b"):
        search(*(() if isinstance(search, partial) else TOY), **settings)
