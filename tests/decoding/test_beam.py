"""Beam search and diverse beam search against brute force, and against themselves written with
lists.
"""

import math
from dataclasses import dataclass, field
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import BLUE, COLOURS, RED, SEEDS, Table, brute_force, by_hand, every, pictures, table

from captioning.decoding import FORBIDDEN, beam_search, diverse_beam_search
from captioning.decoding.ranking import NORMALISATIONS
from captioning.tokens import BOS, EOS, PAD

EOS_LOGITS = st.sampled_from([-4.0, -1.0, 1.0, 3.0])
LENGTHS = {"length": lambda t: t, "gnmt": lambda t: (5 + t) / 6}
PENALTIES = st.sampled_from([-0.5, 0.0, 0.7, 1.0, 2.0])


@given(
    SEEDS,
    EOS_LOGITS,
    st.sampled_from([(1, 5), (2, 4), (3, 3), (5, 1)]),
    PENALTIES,
    st.sampled_from(sorted(NORMALISATIONS)),
    st.integers(1, 6),
    st.booleans(),
)
def test_the_n_best_of_a_wide_beam_are_those_of_brute_force(
    seed, eos, sizes, length_penalty, normalisation, n_best, early_stopping
):
    words, length = sizes
    model = table(seed, words, length, eos=eos)
    everything = sum(words**n for n in range(length + 1))
    settings = {
        "normalisation": normalisation,
        "n_best": min(n_best, everything),
        "early_stopping": early_stopping,
    }
    captions = beam_search(model, pictures([1, 3]), everything, length, length_penalty, **settings)
    for image, best in zip([1, 3], captions, strict=True):
        captions = [
            (total / LENGTHS[normalisation](len(tokens)) ** length_penalty, tokens)
            for total, tokens in brute_force(
                model, image, length, lambda _: [EOS, *range(4, 4 + words)]
            )
        ]
        scores, expected = zip(*sorted(captions, reverse=True)[:n_best], strict=True)
        found = [best, *best.alternatives]
        assert [caption.tokens for caption in found] == [*expected]
        assert [caption.score for caption in found] == pytest.approx(scores, rel=1e-12)


GARDEN_PATH = {
    (): {RED: 0.6, BLUE: 0.3, EOS: 0.1},
    (RED,): {RED: 0.35, BLUE: 0.4, EOS: 0.25},
    (BLUE,): {EOS: 0.9, RED: 0.1},
    (RED, BLUE): {EOS: 1.0},
    (RED, RED): {EOS: 1.0},
}
LATE = {(): {EOS: 0.1, RED: 0.9}, (RED,): {EOS: 0.05, RED: 0.95}, (RED, RED): {EOS: 1.0}}
CERTAIN = {(RED,) * n: {RED: 1.0} for n in (1, 2)} | {(RED,) * 3: {EOS: 1.0}}


@pytest.mark.parametrize(
    "answers, width, max_length, length_penalty, tokens, steps",
    [
        (GARDEN_PATH, 2, 4, 0, [BLUE, EOS], 2),  # worse at first, better in the end
        (GARDEN_PATH, 2, 4, 1, [RED, BLUE, EOS], 3),  # log(0.24) / 3 > log(0.27) / 2
        # a cut caption competes, even when the last step ends as many as the beam is wide: 0.54
        # against 0.4 and 0.06
        ({(): {RED: 0.6, EOS: 0.4}, (RED,): {RED: 0.9, EOS: 0.1}}, 2, 2, 0, [RED, RED], 2),
        # as many ended captions as the beam is wide end the search
        (LATE, 3, 4, 0, [RED, RED, EOS], 3),
        # it goes on while any length can win: log(0.0821) / 2 < log(0.3) < log(0.0821) / 4
        (CERTAIN | {(): {EOS: 0.3, RED: 0.0821, PAD: 0.6179}}, 3, 4, 1, [RED, RED, RED, EOS], 4),
        # and the shortest: log(0.5) sqrt(4) < log(0.3) < log(0.5) sqrt(2)
        ({(): {EOS: 0.3, RED: 0.5, PAD: 0.2}, (RED,): {EOS: 1.0}}, 3, 4, -0.5, [RED, EOS], 2),
        # EOS takes one of two places at the first step; BLUE, the third, must go on all the same
        (
            {
                (): {EOS: 0.4, RED: 0.35, BLUE: 0.25},
                (RED,): {EOS: 0.4, RED: 0.3, BLUE: 0.3},
                (BLUE,): {EOS: 1.0},
            },
            *(2, 3, 1, [BLUE, EOS], 2),
        ),
        # both hypotheses end, in the first and in the third place: 0.3 and 0.2. Behind them BLUE
        # goes on in the fourth, 0.16, and is the best in the end
        (
            {
                (): {RED: 0.6, BLUE: 0.4},
                (RED,): {EOS: 0.5, RED: 0.42, BLUE: 0.08},
                (BLUE,): {EOS: 0.5, RED: 0.4, BLUE: 0.1},
                (RED, RED): {EOS: 0.3, RED: 0.35, BLUE: 0.35},
                (BLUE, RED): {EOS: 1.0},
            },
            *(2, 4, 2, [BLUE, RED, EOS], 3),
        ),
    ],
)
def test_by_hand(answers, width, max_length, length_penalty, tokens, steps):
    model = by_hand(answers)
    (caption,) = beam_search(
        model, pictures([0]), width, max_length, length_penalty, early_stopping=True
    )
    assert (caption.tokens, caption.finished, model.steps) == (tokens, tokens[-1] == EOS, steps)
    probability = math.prod(answers[tuple(tokens[:t])][token] for t, token in enumerate(tokens))
    assert caption.score == pytest.approx(
        math.log(probability) / len(tokens) ** length_penalty, rel=1e-12
    )


def test_a_group_that_has_ended_says_nothing_more():
    """The first group ends with RED, so that RED is no word of its own when the second, whose first
    word differs, goes on.
    """
    answers = {
        (): {RED: 0.6, BLUE: 0.4},
        (RED,): {EOS: 0.6, RED: 0.4},
        (BLUE,): {RED: 0.6, BLUE: 0.4},
        (RED, RED): {EOS: 1.0},
        (BLUE, RED): {EOS: 1.0},
        (BLUE, BLUE): {EOS: 1.0},
    }
    settings = {"groups": 2, "diversity": 1.0, "length_penalty": 0, "early_stopping": True}
    (best,) = diverse_beam_search(
        by_hand(answers), pictures([0]), width=2, max_length=4, **settings
    )
    found = {tuple(caption.tokens): caption.score for caption in (best, *best.alternatives)}
    expected = {(RED, EOS): math.log(0.36), (BLUE, RED, EOS): math.log(0.24)}
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("width", [1, 2, 3, 50])
def test_impossible_continuations_are_never_chosen(width):
    # After RED only EOS is possible: a wide beam is filled with hypotheses of probability zero.
    logits = torch.full((1, COLOURS**3, COLOURS), -torch.inf, dtype=torch.float64)
    logits[0, :, EOS] = 0
    logits[0, BOS, [EOS, RED]] = torch.tensor([0.3, 0.7], dtype=torch.float64).log()
    (caption,) = beam_search(Table(logits, None, 3), pictures([0]), width, 3, 0)
    assert caption.tokens == [RED, EOS]
    assert caption.score == pytest.approx(math.log(0.7), rel=1e-12)


def test_a_model_that_allows_nothing_has_one_caption_of_no_probability():
    (caption,) = beam_search(by_hand({(): {PAD: 1.0}}), pictures([0]), 3, 3, n_best=3)
    assert (caption.score, caption.alternatives) == (-math.inf, [])


def test_fewer_captions_than_asked_for():
    (caption,) = beam_search(by_hand({(): {EOS: 0.7, RED: 0.3}}), pictures([0]), 4, 1, n_best=4)
    assert [caption.tokens, *(other.tokens for other in caption.alternatives)] == [[EOS], [RED]]


@dataclass
class PlainGroup:
    """One group's hypotheses of one image: log-probability, words, and code of the open ones."""

    live: list[tuple[float, list[int], int]] = field(default_factory=lambda: [(0.0, [], BOS)])
    ended: list[tuple[float, list[int]]] = field(default_factory=list)


def plain(model, image, sizes, diversity, max_length, length_penalty, early_stopping, n_best):
    """The captions and their scores, best first, as the docstrings tell it; the early end by score
    must not matter.
    """
    width, groups = sizes
    v = model.logits.shape[-1]
    log_probs = model.logits[image].log_softmax(dim=-1).tolist()
    all_groups = [PlainGroup() for _ in range(groups)]
    for length in range(1, max_length + 1):
        said = []
        for group in all_groups:
            continued = [
                (score + log_probs[code][token], [*words, token], code * v + token)
                for score, words, code in group.live
                for token in (token for token in range(v) if token not in FORBIDDEN)
            ]
            continued.sort(key=lambda c: diversity * said.count(c[1][-1]) - c[0])
            kept = width // groups
            group.ended += [
                (score, words) for score, words, _ in continued[:kept] if words[-1] == EOS
            ]
            group.live = [hypothesis for hypothesis in continued if hypothesis[1][-1] != EOS][:kept]
            if length < max_length and group.live:
                best = max(
                    (score / len(words) ** length_penalty for score, words in group.ended),
                    default=-math.inf,
                )
                lengths = length + 1, max_length
                hope = max(score / n**length_penalty for score, _, _ in group.live for n in lengths)
                # with diversity what a group says, and when it ends, is felt by those behind it
                if (early_stopping and len(group.ended) >= kept) or (groups > 1 and hope <= best):
                    group.live = []
            said += [words[-1] for _, words, _ in group.live]
    found = {}
    for group in all_groups:
        candidates = [*group.ended, *((score, words) for score, words, _ in group.live)]
        ranked = sorted(
            ((score / len(words) ** length_penalty, words) for score, words in candidates),
            reverse=True,
        )
        for score, words in ranked[:n_best]:
            found.setdefault(tuple(words), score)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


@given(
    SEEDS,
    EOS_LOGITS,
    st.sampled_from([(1, 1), (2, 1), (3, 1), (5, 1), (2, 2), (4, 2), (3, 3), (6, 3), (6, 2)]),
    st.sampled_from([0.0, 0.3, 2.0, 50.0]),
    st.integers(1, 4),
    PENALTIES,
    st.booleans(),
    st.integers(1, 3),
)
def test_a_narrow_beam_and_its_groups_are_what_they_say(
    seed, eos, sizes, diversity, max_length, length_penalty, early_stopping, n_best
):
    model = table(seed, words=3, max_tokens=4, images=2, eos=eos)
    searches = [
        (partial(diverse_beam_search, width=sizes[0], groups=sizes[1], diversity=diversity), 1)
    ]
    if sizes[1] == 1:
        n_best = min(n_best, sizes[0])
        searches.append((partial(beam_search, width=sizes[0], n_best=n_best), n_best))
    settings = {
        "max_length": max_length,
        "length_penalty": length_penalty,
        "early_stopping": early_stopping,
    }
    for search, kept in searches:
        expected = [
            plain(model, image, sizes, diversity, **settings, n_best=kept) for image in range(2)
        ]
        found = [{}, {}]
        for i, caption in every(search(model, pictures([0, 1]), **settings)):
            found[i][tuple(caption.tokens)] = pytest.approx(caption.score, rel=1e-12)
        assert [[*captions] for captions in found] == [[*captions] for captions in expected]
        assert found == expected
