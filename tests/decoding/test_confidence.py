"""Scores among those of validation captions, and entropies of captions whose distributions are
known.
"""

import math
import random
from functools import partial

import pytest
import torch
from models import captioners as registry
from toys import BLUE, RED, by_hand, pictures, take, talkative

from captioning.decoding import FORBIDDEN, beam_search, greedy
from captioning.decoding.confidence import are_quantiles, quantiles_of, with_entropy
from captioning.decoding.ensemble import Ensemble, EnsembleContext
from captioning.decoding.ranking import confidence
from captioning.tokens import BOS, EOS


@pytest.mark.parametrize("count", [101, 350, 5000])
def test_it_is_the_share_of_lower_scores(count):
    draw = random.Random(count)
    scores = [-draw.gammavariate(2, 0.6) for _ in range(count)]
    quantiles = quantiles_of(scores)
    for score in [*draw.sample(scores, 50), -9.0, 0.0]:
        share = sum(other < score for other in scores) / count
        # two quantiles lie around it, a hundredth apart, and it is rounded to one
        assert confidence(score, quantiles) == pytest.approx(share, abs=0.02)
    assert confidence(min(scores), quantiles) == 0
    assert confidence(0.0, quantiles) == 1


def test_of_equal_scores_none_is_lower_and_without_scores_it_is_not_known():
    quantiles = quantiles_of([-2.0] * 3 + [-1.0])
    assert confidence(-2.0, quantiles) == 0
    assert confidence(-1.0, quantiles) == pytest.approx(0.99)
    assert (
        quantiles_of([-2.0]) == quantiles_of([-1.755, -1.754, -1.752, -1.75, -1.745]) == []
    )  # nothing to rank by
    assert quantiles_of([]) == quantiles_of([-1.0, float("-inf")]) == []
    assert confidence(-1.0, []) is None
    assert are_quantiles([])
    assert are_quantiles(quantiles)
    for wrong in (
        None,
        [-1.0],
        [-1.0] * 100 + [-2.0],
        [-1.0] * 100 + [float("nan")],
        [-1] * 101,
        "a" * 101,
    ):
        assert not are_quantiles(wrong)  # in a stranger's file


@pytest.mark.parametrize("search", [greedy, partial(beam_search, width=3)])
def test_of_a_table(search):
    """It is the model's: a word that the search forbids counts."""
    answers = {
        (): {RED: 0.5, BLUE: 0.25, EOS: 0.25},  # 1/2 log 2 + 1/2 log 4
        (RED,): {RED: 0.75, EOS: 0.25},  # 3/4 log 4/3 + 1/4 log 4
        (RED, RED): {EOS: 1.0},
    }
    (caption,) = with_entropy(partial(search, forbidden=(*FORBIDDEN, BLUE)))(
        by_hand(answers), pictures([0])
    )
    assert caption.tokens == [RED, RED, EOS]
    expected = [1.5 * math.log(2), math.log(4) - 0.75 * math.log(3), 0.0]
    assert caption.entropy == pytest.approx(expected, abs=1e-12)


@torch.no_grad()
def test_captions_of_different_lengths_and_of_an_ensemble():
    """Of an ensemble it is that of the mean probabilities."""
    models = [talkative("spatial_transformer"), talkative("sat_soft")]
    context, _ = registry.inputs(b=5)
    both = Ensemble(models), EnsembleContext([context, context])
    for model, images in ((models[1], context), both):
        for i, caption in enumerate(with_entropy(partial(greedy, max_length=4))(model, images)):
            alone = take(context, [i])
            state, expected = (
                model.start(EnsembleContext([alone, alone]) if model is both[0] else alone, 1),
                [],
            )
            for token in [BOS, *caption.tokens[:-1]]:
                step = model.step(torch.tensor([[token]]), state)
                state, p = step.state, step.logits[0, 0].softmax(-1)
                expected.append(float(-(p * p.log()).sum()))
            assert caption.entropy == pytest.approx(expected)
    surer, other = (
        by_hand({(): {word: 1.0}, (RED,): {EOS: 1.0}, (BLUE,): {EOS: 1.0}}) for word in (RED, BLUE)
    )
    (caption,) = with_entropy(greedy)(
        Ensemble([surer, other]), EnsembleContext([pictures([0])] * 2)
    )
    assert caption.entropy[0] == pytest.approx(math.log(2))  # two that are sure of different words
