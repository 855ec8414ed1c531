"""Filters against naive checks of the text, through every search."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import SEEDS, brute_force, every, pictures, table

from captioning.decoding import Filter, Filters, beam_search, diverse_beam_search, greedy, sample
from captioning.decoding.filters import Tokens
from captioning.tokens import EOS, NAMES

SEARCHES = [
    greedy,
    partial(beam_search, width=3, n_best=3),
    partial(diverse_beam_search, width=4, groups=2),
    partial(sample, n=3),
]
LENGTH, IMAGES = 4, [0, 1, 2]
WORDS = {4: "a", 5: "dog", 6: "of"}
BAD = ("a", "of")
FILTERS = st.builds(
    Filters,
    min_length=st.integers(0, 4),
    no_repeat_ngram=st.integers(0, 3),
    no_word_twice=st.booleans(),
    forbidden=st.sampled_from([[], ["a"], ["a", "dog"]]),
    prefix=st.sampled_from([[], ["of"], ["a", "a"], ["dog", "a"]]),
    no_bad_ending=st.booleans(),
    required=st.sampled_from([[], ["dog"], ["of", "a"], ["dog", "dog"]]),
)


def allowed(ids, filters):
    """What may follow, by the text; the end where nothing else may."""
    words = [WORDS[i] for i in ids]
    if len(words) < len(filters.prefix):
        return [i for i, word in WORDS.items() if word == filters.prefix[len(words)]]

    def complete(words):
        return len(words) > 0 and not (filters.no_bad_ending and words[-1] in BAD)

    def absent(words):
        return {word for word in filters.required if word not in words}

    n = filters.no_repeat_ngram
    ngrams = [words[i : i + n] for i in range(len(words) - n + 1)]
    found = [
        i
        for i, word in WORDS.items()
        if word not in filters.forbidden
        and not (filters.no_word_twice and words[-1:] == [word])
        and not (n and [*words, word][-n:] in ngrams)
        and (len(words) + 1 < LENGTH or complete([*words, word]))
        and len(absent([*words, word])) < LENGTH - len(words)  # the others can follow
    ]
    whole = not absent(words) and (not words or complete(words))
    may_end = len(words) >= filters.min_length and whole
    return [*found, EOS] if may_end or not found else found


def known(filters):
    return filters.over(Tokens([*NAMES, *WORDS.values()], "en"))


@given(SEEDS, st.sampled_from(SEARCHES), FILTERS)
def test_every_token_is_one_that_the_text_allows(seed, search, filters):
    model = table(seed, words=3, max_tokens=LENGTH, images=3, eos=1.0)
    for _, caption in every(
        search(model, pictures(IMAGES), max_length=LENGTH, filters=known(filters))
    ):
        for t, token in enumerate(caption.tokens):
            assert token in allowed(caption.tokens[:t], filters)


@given(SEEDS, FILTERS)
def test_a_wide_beam_is_brute_force_under_filters(seed, filters):
    model = table(seed, words=3, max_tokens=LENGTH, images=3)
    captions = beam_search(model, pictures(IMAGES), 200, LENGTH, 0.0, filters=known(filters))
    for image, caption in zip(IMAGES, captions, strict=True):
        assert (
            caption.tokens
            == max(brute_force(model, image, LENGTH, partial(allowed, filters=filters)))[1]
        )


class Alternating(Filter):
    def refused(self, words, last):
        assert last == (len(words) == 3)
        return [4 if len(words) % 2 else 5]

    def may_end(self, words):
        return False


def alternating(log_probs, history):
    assert history.shape[:2] == log_probs.shape[:2]
    log_probs = log_probs.clone()
    log_probs[..., [EOS, 4 if history.shape[-1] % 2 else 5]] = -torch.inf
    return log_probs


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("filters", [Alternating(), alternating], ids=["class", "function"])
def test_a_filter_of_ones_own(search, filters):
    model = table(2, words=2, max_tokens=4)
    for best in search(model, pictures(IMAGES), max_length=4, filters=filters):
        assert best.tokens == [4, 5, 4, 5]
