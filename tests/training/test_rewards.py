"""Rewards against the CIDEr-D and BLEU of pycocoevalcap."""

import random
from itertools import chain

import numpy as np
import pytest
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider_scorer import CiderScorer

from captioning.data.caption_words import CaptionWords
from captioning.tokens import EOS, PAD
from captioning.training.objectives.rewards import Reward

V, IMAGES, SAMPLES = 12, 40, 5


def captions():
    """References of images, one to four each, and of each image five candidates, which repeat words
    and references.
    """
    rng = random.Random(0)

    def words(most):
        return [rng.randint(3, V - 1) for _ in range(rng.randint(1, most))]  # 3 is UNK

    references = [[words(12) for _ in range(rng.randint(1, 4))] for _ in range(IMAGES)]
    candidates = []
    for theirs in references:
        near = [list(caption) for caption in rng.choices(theirs, k=SAMPLES)]
        for caption in near:
            caption[rng.randrange(len(caption))] = rng.randint(4, V - 1)
        candidates.append([near[0], near[1][:3], near[2] + near[2], words(9), theirs[0]])
    return references, candidates


REFERENCES, CANDIDATES = captions()


def text(caption):
    return " ".join(map(str, caption))


def given(ended=True):
    """`[B, S, T]` as sampling gives them: EOS behind the words of one that has ended, then PAD."""
    every = [[*caption, EOS] if ended else caption for image in CANDIDATES for caption in image]
    tokens = np.full((len(every), max(map(len, every)) + 1), PAD)
    for row, caption in zip(tokens, every, strict=True):
        row[: len(caption)] = caption
    return tokens.reshape(IMAGES, SAMPLES, -1)


def prepare(reward, references, vocabulary, eos):
    captions = CaptionWords.of(chain.from_iterable(references))
    reward.prepare(captions, np.array([*map(len, references)]), vocabulary, eos)


def rewarded(reward, eos=True, ended=True):
    prepare(reward, REFERENCES, V, eos)
    return reward(np.arange(IMAGES), given(ended))


@pytest.mark.parametrize("eos", [True, False])
def test_cider_d_is_that_of_pycocoevalcap(eos):
    found, end = rewarded(Reward(), eos), [EOS] if eos else []
    for sample in range(SAMPLES):
        scorer = CiderScorer(n=4, sigma=6.0)  # frequencies are those of the references it is given
        for candidates, references in zip(CANDIDATES, REFERENCES, strict=True):
            scorer += (
                text(candidates[sample] + end),
                [text(caption + end) for caption in references],
            )
        _, expected = scorer.compute_score()
        assert found[:, sample] == pytest.approx(expected, abs=1e-12)
    cut = rewarded(Reward(), eos, ended=False)  # the end is a word of what has ended alone
    assert (np.abs(found - cut) > 1e-3).mean() == pytest.approx(0.95 if eos else 0, abs=0.05)


def test_bleu_is_that_of_pycocoevalcap():
    found = rewarded(Reward(cider=0.0, bleu4=1.0))
    for image, sample in np.ndindex(IMAGES, SAMPLES):
        scorer = BleuScorer(n=4)
        candidate, *references = (
            text([*each, EOS]) for each in (CANDIDATES[image][sample], *REFERENCES[image])
        )
        scorer += candidate, references
        _, (*_, expected) = scorer.compute_score(option="closest")
        assert found[image, sample] == pytest.approx(expected[0], rel=1e-9, abs=1e-15)


def test_weights_add_up_and_an_image_has_the_same_reward_in_every_batch():
    reward, tokens = Reward(cider=0.5, bleu4=2.0), given()
    whole = rewarded(reward)
    parts = 0.5 * rewarded(Reward()) + 2 * rewarded(Reward(cider=0.0, bleu4=1.0))
    np.testing.assert_allclose(whole, parts, rtol=1e-14)
    for chosen in ([7], [0], [7, 7, 3]):
        assert (reward(np.array(chosen), tokens[chosen]) == whole[chosen]).all()


def test_a_vocabulary_too_large_for_exact_keys_has_no_collisions_that_occur():
    """Keys are then taken modulo 2^64; words far apart, whose keys share low digits, still
    differ.
    """
    reward = Reward()
    words = [4 + 2**k for k in range(4, 19)]
    prepare(reward, [[[a, b, 7, 8]] for a in words for b in words], 2**20 - 1, eos=False)
    singles, pairs = len(words) + 2, len(words) ** 2 + len(words) + 1
    assert (
        len(reward.frequencies.keys)
        == singles + pairs + len(words) ** 2 + len(words) + len(words) ** 2
    )
