"""Greedy decoding of tables that can be followed by hand."""

import math

import pytest
from toys import BLUE, RED, by_hand, pictures, table

from captioning.decoding import FORBIDDEN, greedy
from captioning.tokens import BOS, EOS, PAD, UNK

SENTENCES = {
    (): {RED: 0.5, BLUE: 0.3, EOS: 0.2},
    (RED,): {RED: 0.1, BLUE: 0.7, EOS: 0.2},
    (RED, BLUE): {RED: 0.25, BLUE: 0.25, EOS: 0.5},
}


def test_by_hand() -> None:
    model = by_hand(SENTENCES)
    (caption,) = greedy(model, pictures([0]), max_length=4)
    assert caption.tokens == [RED, BLUE, EOS]
    assert model.steps == 3  # it stops when all have ended
    assert caption.score == pytest.approx(math.log(0.5 * 0.7 * 0.5), rel=1e-12)
    assert caption.attention.tolist() == [[0, 0], [1, -1], [2, -2]]
    assert caption.finished


def test_cut_at_the_maximum_length() -> None:
    (caption,) = greedy(by_hand(SENTENCES), pictures([0]), max_length=2)
    assert caption.tokens == [RED, BLUE]
    assert caption.score == pytest.approx(math.log(0.5 * 0.7), rel=1e-12)
    assert caption.attention.tolist() == [[0, 0], [1, -1]]
    assert not caption.finished


def test_one_token() -> None:
    (caption,) = greedy(by_hand(SENTENCES), pictures([0]), max_length=1)
    assert caption.tokens == [RED]
    (caption,) = greedy(by_hand({(): {EOS: 0.6, RED: 0.4}}), pictures([0]), max_length=1)
    assert (caption.tokens, caption.finished) == ([EOS], True)


@pytest.mark.parametrize("forbidden", FORBIDDEN)
def test_a_forbidden_token_is_passed_over_and_its_probability_lost(forbidden: int) -> None:
    model = by_hand({(): {forbidden: 0.9, RED: 0.06, EOS: 0.04}, (RED,): {forbidden: 0.7, EOS: 0.2, BLUE: 0.1}})
    (caption,) = greedy(model, pictures([0]))
    assert caption.tokens == [RED, EOS]
    assert caption.score == pytest.approx(math.log(0.06 * 0.2), rel=1e-12)


def test_other_tokens_can_be_forbidden() -> None:
    (caption,) = greedy(by_hand({(): {RED: 0.9, BLUE: 0.1}}), pictures([0]), max_length=1, forbidden=(RED, EOS))
    assert caption.tokens == [BLUE]


def test_padding_is_a_token_like_others_where_it_is_not_forbidden() -> None:
    model = by_hand({(): {PAD: 1.0}, (PAD,): {RED: 1.0}, (PAD, RED): {EOS: 1.0}})
    (caption,) = greedy(model, pictures([0]), forbidden=(BOS, UNK))
    assert caption.tokens == [PAD, RED, EOS]
    assert len(caption.attention) == 3


def test_an_image_that_ended_waits_for_the_others() -> None:
    model = table(0, max_tokens=4, images=3)
    model.logits[:, :, EOS] = -50.0
    model.logits[1, BOS, EOS] = 50.0  # image 1 ends at once, the others never
    captions = greedy(model, pictures([0, 1, 2]), max_length=4)
    assert [len(caption.tokens) for caption in captions] == [4, 1, 4]
    assert captions[1].tokens == [EOS]
    assert captions[1].score == pytest.approx(0, abs=1e-12)
    assert [len(caption.attention) for caption in captions] == [4, 1, 4]
