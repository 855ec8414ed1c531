"""Beam search against brute force, and against itself written with lists."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import (
    BLUE,
    COLOURS,
    RED,
    Table,
    brute_force,
    brute_force_ranking,
    by_hand,
    photographs,
    pictures,
    plain_beam,
    table,
    transformer,
)

from captioning.decoding import beam_search
from captioning.tokens import BOS, EOS, PAD

REPEATABLE = settings(deadline=None, derandomize=True, max_examples=25, database=None)
SEEDS = st.integers(0, 2**32 - 1)
EOS_LOGITS = st.sampled_from([-4.0, -1.0, 1.0, 3.0])


@pytest.mark.parametrize("length_penalty", [0.0, 0.7, 1.0])
@pytest.mark.parametrize(("words", "max_length"), [(1, 5), (2, 3), (3, 3), (2, 4), (5, 1), (3, 2)])
def test_a_wide_beam_is_brute_force(words: int, max_length: int, length_penalty: float) -> None:
    everything = sum(words**length for length in range(max_length + 1))
    kinds = set()
    for seed, eos in enumerate((-8.0, -3.0, 0.0, 2.0)):
        model = table(seed, words, max_length, eos=eos)
        images = [3, 0, 4, 1]
        captions = beam_search(model, pictures(images), everything, max_length, length_penalty)
        for caption, image in zip(captions, images, strict=True):
            tokens, score = brute_force(model, image, max_length, length_penalty)
            assert caption.tokens == tokens
            assert caption.score == pytest.approx(score, rel=1e-12)
            kinds.add(caption.finished)
    assert kinds == {True, False}  # captions that ended and captions that were cut have won


@REPEATABLE
@given(seed=SEEDS, eos=EOS_LOGITS, length_penalty=st.sampled_from([-0.5, 0.0, 0.7, 1.0, 2.0]))
def test_a_wide_beam_is_brute_force_for_any_table(seed: int, eos: float, length_penalty: float) -> None:
    model = table(seed, words=2, max_tokens=4, images=1, eos=eos)
    (caption,) = beam_search(model, pictures([0]), 2**3 * 3, 4, length_penalty)
    tokens, score = brute_force(model, 0, 4, length_penalty)
    assert caption.tokens == tokens
    assert caption.score == pytest.approx(score, rel=1e-12)


@settings(REPEATABLE, max_examples=150)
@given(
    seed=SEEDS,
    eos=EOS_LOGITS,
    width=st.integers(1, 5),
    max_length=st.integers(1, 4),
    length_penalty=st.sampled_from([-0.5, 0.0, 0.7, 1.0, 2.0]),
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


def test_a_wide_beam_over_the_spatial_transformer_is_at_least_as_good() -> None:
    model, context = transformer(), photographs(7)
    narrow = beam_search(model, context, 1, 7, 0)
    wide = beam_search(model, context, 300, 7, 0)
    assert all(a.score >= b.score - 1e-12 for a, b in zip(wide, narrow, strict=True))
    assert any(a.score > b.score + 1e-3 for a, b in zip(wide, narrow, strict=True))


@pytest.mark.parametrize("normalisation", ["length", "gnmt"])
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
def test_the_n_best_of_a_wide_beam_are_those_of_brute_force(normalisation: str, length_penalty: float) -> None:
    for seed in range(4):
        model = table(seed, words=2, max_tokens=4)
        captions = beam_search(
            model,
            pictures([1, 3]),
            40,
            4,
            length_penalty,
            normalisation=normalisation,  # type: ignore[arg-type]
            n_best=6,
        )
        for image, best in zip([1, 3], captions, strict=True):
            expected = brute_force_ranking(
                model, image, 4, lambda n: (n if normalisation == "length" else (5 + n) / 6) ** length_penalty
            )
            found = [best, *best.alternatives]
            assert [caption.tokens for caption in found] == [tokens for tokens, _ in expected[:6]]
            scores = [caption.score for caption in found]
            assert scores == sorted(scores, reverse=True)
            assert all(caption.alternatives == [] for caption in best.alternatives)


def test_normalisation_of_google_by_hand() -> None:
    # log(0.24) / (8 / 6)^2 > log(0.27) / (7 / 6)^2
    (caption,) = beam_search(by_hand(GARDEN_PATH), pictures([0]), 2, 4, 2.0, normalisation="gnmt")
    assert caption.tokens == [RED, BLUE, EOS]
    assert caption.score == pytest.approx(math.log(0.24) / (8 / 6) ** 2, rel=1e-12)


def test_fewer_captions_than_asked_for() -> None:
    (caption,) = beam_search(by_hand({(): {EOS: 0.7, RED: 0.3}}), pictures([0]), 4, 1, n_best=4)
    assert [caption.tokens, *(other.tokens for other in caption.alternatives)] == [[EOS], [RED]]
