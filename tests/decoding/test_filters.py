"""Filters against naive checks of the text, through every search."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import Search, Table, parallel, pictures, table

from captioning.decoding import FORBIDDEN, Caption, Filters, beam_search, diverse_beam_search, greedy, sample
from captioning.tokens import BOS, EOS

SEARCHES: dict[str, Search] = {
    "greedy": greedy,
    "beam": partial(beam_search, width=3, n_best=3, length_penalty=0),
    "diverse beam": partial(diverse_beam_search, width=4, groups=2, length_penalty=0),
    "sample": partial(sample, n=3),
}
LENGTH, IMAGES = 5, [0, 1, 2]
repeatable = settings(deadline=None, derandomize=True, max_examples=30, database=None)


def ngrams(words: list[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def captions_of(search: Search, seed: int, filters: Filters, **changes: Any) -> list[tuple[int, Caption]]:
    """All captions of three images of a random table of three words, and the images."""
    model = table(seed, words=3, max_tokens=LENGTH, **changes)
    found = search(model, pictures(IMAGES), max_length=LENGTH, filters=filters)
    return [(image, c) for image, best in zip(IMAGES, found, strict=True) for c in (best, *best.alternatives)]


@repeatable
@given(
    seed=st.integers(0, 2**32 - 1),
    search=st.sampled_from(list(SEARCHES.values())),
    filters=st.builds(
        Filters,
        min_length=st.integers(0, 3),
        no_repeat_ngram=st.sampled_from([0, 2, 3]),
        no_word_twice=st.booleans(),
        forbidden=st.sampled_from([[], [4], [6]]),
        prefix=st.sampled_from([[], [5], [5, 4]]),
        no_bad_ending=st.sampled_from([[], [4], [4, 5]]),
    ),
)
def test_every_caption_keeps_to_its_filters(seed: int, search: Search, filters: Filters) -> None:
    for _, caption in captions_of(search, seed, filters, eos=1.0):
        words = [token for token in caption.tokens if token != EOS]
        assert words[: len(filters.prefix)] == list(filters.prefix)
        own = words[len(filters.prefix) :]
        assert not set(own) & {*filters.forbidden, *FORBIDDEN}
        if filters.no_word_twice:
            assert all(a != b for a, b in itertools.pairwise(words))
        if n := filters.no_repeat_ngram:
            assert len(set(ngrams(words, n))) == len(ngrams(words, n))
        if words and words[-1] in filters.no_bad_ending:
            assert caption.tokens[-1] != EOS or not allowed(words, filters)
        # it may end early only where nothing else is allowed
        if len(words) < filters.min_length:
            assert not allowed(words, filters)


def allowed(words: list[int], filters: Filters) -> list[int]:
    """What may follow, the end apart, by the text."""
    if len(words) < len(filters.prefix):
        return [filters.prefix[len(words)]]
    n = filters.no_repeat_ngram
    return [
        word
        for word in (4, 5, 6)
        if word not in filters.forbidden
        and not (filters.no_word_twice and words and words[-1] == word)
        and not (n and len(words) + 1 >= n and tuple([*words, word][-n:]) in ngrams(words, n))
    ]


@repeatable
@given(
    seed=st.integers(0, 2**32 - 1),
    filters=st.builds(
        Filters,
        min_length=st.integers(0, 4),
        no_repeat_ngram=st.integers(0, 3),
        no_word_twice=st.booleans(),
        forbidden=st.sampled_from([[], [4], [4, 5]]),
        prefix=st.sampled_from([[], [6], [4, 4]]),
    ),
)
def test_greedy_takes_the_likeliest_word_that_the_text_allows(seed: int, filters: Filters) -> None:
    model = table(seed, words=3, max_tokens=LENGTH)
    for image, caption in zip(IMAGES, greedy(model, pictures(IMAGES), LENGTH, filters=filters), strict=True):
        code, said = BOS, []
        while len(said) < LENGTH and said[-1:] != [EOS]:
            choices = allowed(said, filters)
            ends = len(said) >= max(filters.min_length, len(filters.prefix))
            logits = model.logits[image, code]
            said.append(max([*choices, EOS] if ends or not choices else choices, key=lambda word: float(logits[word])))
            code = code * model.logits.shape[-1] + said[-1]
        assert caption.tokens == said


def all_that_is_allowed(model: Table, image: int, filters: Filters) -> list[tuple[float, list[int]]]:
    """Every caption of up to four tokens that the text allows, and its log-probability."""
    log_probs = model.logits[image].log_softmax(-1)
    v = model.logits.shape[-1]
    found: list[tuple[float, list[int]]] = []

    def follow(words: list[int], code: int, total: float) -> None:
        if len(words) == 4:
            found.append((total, words))
            return
        choices = allowed(words, filters)
        if len(words) >= max(filters.min_length, len(filters.prefix)) or not choices:
            found.append((total + float(log_probs[code, EOS]), [*words, EOS]))
        for word in choices:
            follow([*words, word], code * v + word, total + float(log_probs[code, word]))

    follow([], BOS, 0.0)
    return found


KINDS = [
    Filters(min_length=2),
    Filters(no_repeat_ngram=1),
    Filters(2, 2, no_word_twice=True),
    Filters(3, 1, prefix=[5]),
    Filters(forbidden=[5]),
]


@pytest.mark.parametrize("filters", KINDS, ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_a_wide_beam_is_brute_force_under_filters(seed: int, filters: Filters) -> None:
    model = table(seed, words=3, max_tokens=4)
    captions = beam_search(model, pictures(IMAGES), 200, 4, 0, filters=filters)
    for image, caption in zip(IMAGES, captions, strict=True):
        assert caption.tokens == max(all_that_is_allowed(model, image, filters))[1]


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_scores_are_the_models_own(search: Search) -> None:
    filters = Filters(min_length=2, no_word_twice=True, prefix=[4])
    model = table(1, words=3, max_tokens=LENGTH)
    for i, best in enumerate(search(model, pictures(IMAGES), max_length=LENGTH, filters=filters)):
        for caption in (best, *best.alternatives):
            chosen, maps = parallel(model, pictures(IMAGES), i, caption.tokens)
            assert caption.score == pytest.approx(sum(chosen), rel=1e-11)
            torch.testing.assert_close(caption.attention, maps, rtol=0, atol=1e-12)


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_a_filter_of_ones_own(search: Callable[..., list[Caption]]) -> None:
    def alternating(log_probs: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
        assert history.shape[:2] == log_probs.shape[:2]
        log_probs = log_probs.clone()
        log_probs[..., [EOS, 4 if history.shape[-1] % 2 else 5]] = -torch.inf
        return log_probs

    model = table(2, words=2, max_tokens=4)
    for best in search(model, pictures(IMAGES), max_length=4, filters=alternating):
        assert best.tokens == [4, 5, 4, 5]
