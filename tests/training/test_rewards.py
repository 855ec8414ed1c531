"""Rewards against CIDEr-D's formula written out over dictionaries, and BLEU against pycocoevalcap."""

import math
import random
from collections import Counter

import numpy as np
import pytest
from pycocoevalcap.bleu.bleu_scorer import BleuScorer

from captioning.tokens import EOS, PAD
from captioning.training.rewards import Reward

V, IMAGES, SAMPLES = 12, 40, 5
Caption = list[int]
Vector = dict[tuple[int, ...], float]


def captions() -> tuple[list[list[Caption]], list[list[Caption]]]:
    """References of images, one to four each, and of each image five candidates, which repeat words and references."""
    rng = random.Random(0)

    def words(most: int) -> Caption:
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


def cooked(caption: Caption) -> Counter[tuple[int, ...]]:
    return Counter(tuple(caption[i : i + n]) for n in range(1, 5) for i in range(len(caption) - n + 1))


def cider_d(candidate: Caption, references: list[Caption], corpus: list[list[Caption]]) -> float:
    """Vedantam et al. 2015, and the lengths and the factor of the reference code."""
    df = Counter(ngram for image in corpus for ngram in {n for caption in image for n in cooked(caption)})

    def vectors(caption: Caption) -> list[Vector]:
        idf = {g: math.log(len(corpus)) - math.log(max(1, df[g])) for g in cooked(caption)}
        return [{g: c * idf[g] for g, c in cooked(caption).items() if len(g) == n} for n in range(1, 5)]

    scores = []
    for reference in references:
        delta = max(len(candidate) - 1, 0) - max(len(reference) - 1, 0)
        for c, s in zip(vectors(candidate), vectors(reference), strict=True):
            norms = math.sqrt(sum(x * x for x in c.values())) * math.sqrt(sum(x * x for x in s.values()))
            dot = sum(min(x, s.get(g, 0)) * s.get(g, 0) for g, x in c.items())
            scores.append(math.exp(-(delta**2) / 72) * (dot / norms if norms else 0))
    return 10 * sum(scores) / len(scores)


def given(ended: bool = True) -> np.ndarray:
    """`[B, S, T]` as sampling gives them: EOS behind the words of one that has ended, then PAD."""
    every = [[*caption, EOS] if ended else caption for image in CANDIDATES for caption in image]
    tokens = np.full((len(every), max(map(len, every)) + 1), PAD)
    for row, caption in zip(tokens, every, strict=True):
        row[: len(caption)] = caption
    return tokens.reshape(IMAGES, SAMPLES, -1)


def rewarded(reward: Reward, eos: bool = True, ended: bool = True) -> np.ndarray:
    reward.prepare(REFERENCES, V, eos)
    return reward(np.arange(IMAGES), given(ended))


@pytest.mark.parametrize("eos", [True, False])
def test_cider_d_is_the_formula_of_two_hundred_captions(eos: bool) -> None:
    found, end = rewarded(Reward(), eos), [EOS] if eos else []
    corpus = [[caption + end for caption in image] for image in REFERENCES]
    for image, candidates in enumerate(CANDIDATES):
        expected = [cider_d(caption + end, corpus[image], corpus) for caption in candidates]
        assert found[image] == pytest.approx(expected, abs=1e-12)
    cut = rewarded(Reward(), eos, ended=False)  # the end is a word of what has ended alone
    assert (np.abs(found - cut) > 1e-3).mean() == pytest.approx(0.95 if eos else 0, abs=0.05)


def test_bleu_is_that_of_pycocoevalcap() -> None:
    def text(caption: Caption) -> str:
        return " ".join(map(str, [*caption, EOS]))

    found = rewarded(Reward(cider=0.0, bleu4=1.0))
    for image, sample in np.ndindex(IMAGES, SAMPLES):
        scorer = BleuScorer(n=4)
        scorer += (text(CANDIDATES[image][sample]), list(map(text, REFERENCES[image])))
        _, (*_, expected) = scorer.compute_score(option="closest")
        assert found[image, sample] == pytest.approx(expected[0], rel=1e-9, abs=1e-15)


def test_weights_add_up_and_an_image_has_the_same_reward_in_every_batch() -> None:
    reward, tokens = Reward(cider=0.5, bleu4=2.0), given()
    whole = rewarded(reward)
    parts = 0.5 * rewarded(Reward()) + 2 * rewarded(Reward(cider=0.0, bleu4=1.0))
    np.testing.assert_allclose(whole, parts, rtol=1e-14)
    for chosen in ([7], [0], [7, 7, 3]):
        assert (reward(np.array(chosen), tokens[chosen]) == whole[chosen]).all()


def test_frequencies_are_known_by_their_digest() -> None:
    digests = []
    reordered = [list(reversed(image)) for image in REFERENCES]
    for references, eos in ((REFERENCES, True), (reordered, True), (REFERENCES, False), (REFERENCES[1:], True)):
        reward = Reward()
        reward.prepare(references, V, eos)
        digests.append(reward.frequencies.digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_a_vocabulary_too_large_for_exact_keys_has_no_collisions_that_occur() -> None:
    """Keys are then taken modulo 2^64; words far apart, whose keys share low digits, still differ."""
    reward = Reward()
    words = [4 + 2**k for k in range(4, 19)]
    reward.prepare([[[a, b, 7, 8]] for a in words for b in words], 2**20 - 1, eos=False)
    singles, pairs = len(words) + 2, len(words) ** 2 + len(words) + 1
    assert len(reward.frequencies.keys) == singles + pairs + len(words) ** 2 + len(words) + len(words) ** 2
