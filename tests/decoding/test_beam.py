"""Beam search and diverse beam search against brute force, and against themselves written with lists."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import (
    BLUE,
    COLOURS,
    RED,
    Table,
    assert_same,
    brute_force_ranking,
    by_hand,
    photographs,
    pictures,
    plain_beam,
    table,
    transformer,
)

from captioning.decoding import FORBIDDEN, beam_search, diverse_beam_search
from captioning.tokens import BOS, EOS, PAD

REPEATABLE = settings(deadline=None, derandomize=True, max_examples=25, database=None)
SEEDS = st.integers(0, 2**32 - 1)
EOS_LOGITS = st.sampled_from([-4.0, -1.0, 1.0, 3.0])


SIZES = st.sampled_from([(1, 5), (2, 4), (3, 3), (5, 1)])
NORMALISATIONS = st.sampled_from(["length", "gnmt"])
PENALTIES = st.sampled_from([-0.5, 0.0, 0.7, 1.0, 2.0])


@settings(REPEATABLE, max_examples=100)
@given(
    SEEDS, EOS_LOGITS, st.sampled_from([(1, 5), (2, 4), (3, 3), (5, 1)]), PENALTIES, NORMALISATIONS, st.integers(1, 6)
)
def test_the_n_best_of_a_wide_beam_are_those_of_brute_force(
    seed: int, eos: float, sizes: tuple[int, int], length_penalty: float, normalisation: Any, n_best: int
) -> None:
    words, length = sizes
    model = table(seed, words, length, eos=eos)
    everything = sum(words**n for n in range(length + 1))
    settings = {"normalisation": normalisation, "n_best": min(n_best, everything)}
    captions = beam_search(model, pictures([1, 3]), everything, length, length_penalty, **settings)
    for image, best in zip([1, 3], captions, strict=True):
        expected = brute_force_ranking(
            model, image, length, lambda n: (n if normalisation == "length" else (5 + n) / 6) ** length_penalty
        )[:n_best]
        found = [best, *best.alternatives]
        assert [caption.tokens for caption in found] == [tokens for tokens, _ in expected]
        assert [caption.score for caption in found] == pytest.approx([score for _, score in expected], rel=1e-12)
        assert all(caption.alternatives == [] for caption in best.alternatives)


@settings(REPEATABLE, max_examples=150)
@given(
    seed=SEEDS,
    eos=EOS_LOGITS,
    width=st.integers(1, 5),
    max_length=st.integers(1, 4),
    length_penalty=PENALTIES,
)
def test_a_narrow_beam_is_what_it_says(
    seed: int, eos: float, width: int, max_length: int, length_penalty: float
) -> None:
    model = table(seed, words=3, max_tokens=4, images=2, eos=eos)
    captions = beam_search(model, pictures([0, 1]), width, max_length, length_penalty)
    for image, caption in enumerate(captions):
        tokens, score = plain_beam(model, image, width, max_length, length_penalty)
        assert caption.tokens == tokens
        assert caption.score == pytest.approx(score, rel=1e-12)


GARDEN_PATH = {
    (): {RED: 0.6, BLUE: 0.3, EOS: 0.1},
    (RED,): {RED: 0.35, BLUE: 0.4, EOS: 0.25},
    (BLUE,): {EOS: 0.9, RED: 0.1},
    (RED, BLUE): {EOS: 1.0},
    (RED, RED): {EOS: 1.0},
}


@pytest.mark.parametrize(
    ("width", "length_penalty", "tokens", "probability"),
    [
        (1, 0, [RED, BLUE, EOS], 0.24),
        (2, 0, [BLUE, EOS], 0.27),  # worse at first, better in the end
        (2, 1, [RED, BLUE, EOS], 0.24),  # log(0.24) / 3 > log(0.27) / 2
    ],
)
def test_by_hand(width: int, length_penalty: float, tokens: list[int], probability: float) -> None:
    (caption,) = beam_search(by_hand(GARDEN_PATH), pictures([0]), width, 4, length_penalty)
    assert caption.tokens == tokens
    assert caption.score == pytest.approx(math.log(probability) / len(tokens) ** length_penalty, rel=1e-12)
    assert caption.finished


def test_a_cut_caption_competes_even_when_the_last_step_ends_as_many_as_the_beam_is_wide() -> None:
    model = by_hand({(): {RED: 0.6, EOS: 0.4}, (RED,): {RED: 0.9, EOS: 0.1}})
    (caption,) = beam_search(model, pictures([0]), width=2, max_length=2, length_penalty=0)
    assert caption.tokens == [RED, RED]  # 0.54; 0.4 ended before and 0.06 ends at the last step
    assert caption.score == pytest.approx(math.log(0.54), rel=1e-12)
    assert not caption.finished


def test_as_many_ended_captions_as_the_beam_is_wide_end_the_search() -> None:
    model = by_hand({(): {EOS: 0.1, RED: 0.9}, (RED,): {EOS: 0.05, RED: 0.95}, (RED, RED): {EOS: 1.0}})
    (caption,) = beam_search(model, pictures([0]), width=2, max_length=4, length_penalty=0)
    assert caption.tokens == [EOS]
    assert model.steps == 2
    (caption,) = beam_search(model, pictures([0]), width=3, max_length=4, length_penalty=0)
    assert caption.tokens == [RED, RED, EOS]


def test_the_search_stops_when_nothing_better_can_come() -> None:
    model = by_hand({(): {EOS: 0.9, RED: 0.1}, (RED,): {EOS: 0.5, RED: 0.5}})
    (caption,) = beam_search(model, pictures([0]), width=3, max_length=4, length_penalty=0)
    assert (caption.tokens, model.steps) == ([EOS], 1)
    # but where length is rewarded it goes on: log(0.1) / 4 > log(0.4)
    model = by_hand({(): {EOS: 0.4, RED: 0.6}, (RED,): {RED: 1.0}, (RED, RED): {RED: 1.0}, (RED, RED, RED): {EOS: 1.0}})
    (caption,) = beam_search(model, pictures([0]), width=3, max_length=4, length_penalty=1)
    assert (caption.tokens, model.steps) == ([RED, RED, RED, EOS], 4)


def test_the_beam_is_filled_up_with_open_hypotheses() -> None:
    # EOS takes one of two places at the first step; BLUE, the third, must go on all the same.
    model = by_hand(
        {(): {EOS: 0.4, RED: 0.35, BLUE: 0.25}, (RED,): {EOS: 0.4, RED: 0.3, BLUE: 0.3}, (BLUE,): {EOS: 1.0}}
    )
    (caption,) = beam_search(model, pictures([0]), width=2, max_length=3, length_penalty=1)
    assert caption.tokens == [BLUE, EOS]


@pytest.mark.parametrize(
    ("length_penalty", "tokens", "probability"),
    [
        (1.0, [RED, RED, RED, EOS], 0.0821),  # log(0.0821) / 2 < log(0.3) < log(0.0821) / 4: wins by its length only
        (-0.5, [RED, EOS], 0.5),  # log(0.5) sqrt(4) < log(0.3) < log(0.5) sqrt(2): wins if it ends at once
    ],
)
def test_the_search_goes_on_while_any_length_can_win(
    length_penalty: float, tokens: list[int], probability: float
) -> None:
    answers = {tuple(tokens[:t]): {tokens[t]: 1.0} for t in range(1, len(tokens))}
    answers[()] = {EOS: 0.3, RED: probability, PAD: 0.7 - probability}
    (caption,) = beam_search(by_hand(answers), pictures([0]), 3, 4, length_penalty)
    assert caption.tokens == tokens
    assert caption.score == pytest.approx(math.log(probability) / len(tokens) ** length_penalty, rel=1e-12)


@pytest.mark.parametrize("width", [1, 2, 3, 50])
def test_impossible_continuations_are_never_chosen(width: int) -> None:
    # After RED only EOS is possible: a wide beam is filled with hypotheses of probability zero.
    logits = torch.full((1, COLOURS**3, COLOURS), -torch.inf, dtype=torch.float64)
    logits[0, :, EOS] = 0
    logits[0, BOS, [EOS, RED]] = torch.tensor([0.3, 0.7], dtype=torch.float64).log()
    (caption,) = beam_search(Table(logits, None, 3), pictures([0]), width, 3, 0)
    assert caption.tokens == [RED, EOS]
    assert caption.score == pytest.approx(math.log(0.7), rel=1e-12)


def test_normalisation_of_google_by_hand() -> None:
    # log(0.24) / (8 / 6)^2 > log(0.27) / (7 / 6)^2
    (caption,) = beam_search(by_hand(GARDEN_PATH), pictures([0]), 2, 4, 2.0, normalisation="gnmt")
    assert caption.tokens == [RED, BLUE, EOS]
    assert caption.score == pytest.approx(math.log(0.24) / (8 / 6) ** 2, rel=1e-12)


def test_fewer_captions_than_asked_for() -> None:
    (caption,) = beam_search(by_hand({(): {EOS: 0.7, RED: 0.3}}), pictures([0]), 4, 1, n_best=4)
    assert [caption.tokens, *(other.tokens for other in caption.alternatives)] == [[EOS], [RED]]


class PlainGroup:
    """One group's hypotheses `(log-probability, words, code)` of one image."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.live: list[tuple[float, list[int], int]] = [(0.0, [], BOS)]
        self.ended: list[tuple[float, list[int]]] = []


def plain(
    model: Table, image: int, width: int, groups: int, diversity: float, max_length: int, length_penalty: float
) -> list[list[int]]:
    """The captions, best first, as the docstring tells it."""
    v = model.logits.shape[-1]
    log_probs = model.logits[image].log_softmax(dim=-1).tolist()
    all_groups = [PlainGroup(width // groups) for _ in range(groups)]
    for length in range(1, max_length + 1):
        said: list[int] = []
        for group in all_groups:
            continued = []
            for score, words, code in group.live:
                for token in (token for token in range(v) if token not in FORBIDDEN):
                    own = score + log_probs[code][token]
                    continued.append((own - diversity * said.count(token), own, [*words, token], code * v + token))
            continued.sort(key=lambda c: -c[0])
            group.ended += [(own, words) for _, own, words, _ in continued[: group.width] if words[-1] == EOS]
            group.live = [(own, words, code) for _, own, words, code in continued if words[-1] != EOS][: group.width]
            if length < max_length and group.live:
                best = max((score / len(words) ** length_penalty for score, words in group.ended), default=-math.inf)
                lengths = length + 1, max_length
                hope = max(score / n**length_penalty for score, _, _ in group.live for n in lengths)
                if len(group.ended) >= group.width or hope <= best:
                    group.live = []
            said += [words[-1] for _, words, _ in group.live]
    found = {}
    for group in all_groups:
        candidates = [*group.ended, *((score, words) for score, words, _ in group.live)]
        score, words = max((score / len(words) ** length_penalty, words) for score, words in candidates)
        found.setdefault(tuple(words), score)
    return [list(words) for words, _ in sorted(found.items(), key=lambda item: -item[1])]


@settings(REPEATABLE, max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1),
    eos=st.sampled_from([-2.0, 0.0, 2.0]),
    sizes=st.sampled_from([(2, 2), (4, 2), (3, 3), (6, 3), (6, 2), (3, 1)]),
    diversity=st.sampled_from([0.0, 0.3, 2.0, 50.0]),
    length_penalty=st.sampled_from([0.0, 1.0]),
)
def test_it_is_what_it_says(
    seed: int, eos: float, sizes: tuple[int, int], diversity: float, length_penalty: float
) -> None:
    model = table(seed, words=4, max_tokens=4, images=2, eos=eos)
    captions = diverse_beam_search(model, pictures([0, 1]), *sizes, diversity, 4, length_penalty)
    for image, best in enumerate(captions):
        expected = plain(model, image, *sizes, diversity, 4, length_penalty)
        assert [best.tokens, *(caption.tokens for caption in best.alternatives)] == expected


@pytest.mark.parametrize("groups", [1, 3])
def test_without_diversity_every_group_is_the_beam(groups: int) -> None:
    model, context = transformer(), photographs(5)
    found = diverse_beam_search(model, context, 2 * groups, groups, 0.0, 5)
    assert_same(found, beam_search(model, context, 2, 5))


def test_groups_avoid_each_others_words() -> None:
    model = table(3, words=5, max_tokens=3, eos=-60)
    for best in diverse_beam_search(model, pictures([0, 1, 2]), 3, 3, 1e6, 3):
        captions = [best, *best.alternatives]
        assert len(captions) == 3
        for words in zip(*(caption.tokens for caption in captions), strict=True):
            assert len(set(words)) == 3
