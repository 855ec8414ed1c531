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


def captions(seed: int) -> tuple[list[list[Caption]], list[list[Caption]]]:
    """References of images, one to four each, and of each image five candidates, which repeat words and references."""
    rng = random.Random(seed)

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


def cooked(caption: Caption) -> Counter[tuple[int, ...]]:
    return Counter(tuple(caption[i : i + n]) for n in range(1, 5) for i in range(len(caption) - n + 1))


def cider_d(candidate: Caption, references: list[Caption], corpus: list[list[Caption]]) -> float:
    """Vedantam et al. 2015, and the lengths and the factor of the reference code."""
    df = Counter(ngram for image in corpus for ngram in {n for caption in image for n in cooked(caption)})

    def vector(caption: Caption) -> dict[tuple[int, ...], float]:
        return {g: c * (math.log(len(corpus)) - math.log(max(1, df[g]))) for g, c in cooked(caption).items()}

    def of(vector: dict[tuple[int, ...], float], n: int) -> dict[tuple[int, ...], float]:
        return {g: x for g, x in vector.items() if len(g) == n}

    scores = []
    for reference in references:
        delta = max(len(candidate) - 1, 0) - max(len(reference) - 1, 0)
        for n in range(1, 5):
            c, s = of(vector(candidate), n), of(vector(reference), n)
            norms = math.sqrt(sum(x * x for x in c.values())) * math.sqrt(sum(x * x for x in s.values()))
            dot = sum(min(x, s.get(g, 0)) * s.get(g, 0) for g, x in c.items())
            scores.append(math.exp(-(delta**2) / 72) * (dot / norms if norms else 0))
    return 10 * sum(scores) / len(scores)


def given(candidates: list[list[Caption]], ended: bool) -> np.ndarray:
    """`[B, S, T]` as sampling gives them: EOS behind the words of one that has ended, then PAD."""
    longest = max(len(caption) for image in candidates for caption in image) + 2
    tokens = np.full((len(candidates), SAMPLES, longest), PAD)
    for row, caption in zip(tokens.reshape(-1, longest), (c for image in candidates for c in image), strict=True):
        whole = [*caption, EOS] if ended else caption
        row[: len(whole)] = whole
    return tokens


def rewarded(reward: Reward, eos: bool, ended: bool = True, seed: int = 0) -> np.ndarray:
    references, candidates = captions(seed)
    reward.prepare(references, V, eos)
    return reward(np.arange(IMAGES), given(candidates, ended))


@pytest.mark.parametrize("eos", [True, False])
def test_cider_d_is_the_formula_of_two_hundred_captions(eos: bool) -> None:
    found = rewarded(Reward(), eos)
    references, candidates = captions(0)
    end = [EOS] if eos else []
    corpus = [[caption + end for caption in image] for image in references]
    for image in range(IMAGES):
        for sample, caption in enumerate(candidates[image]):
            expected = cider_d(caption + end, corpus[image], corpus)
            assert found[image, sample] == pytest.approx(expected, abs=1e-12), caption


def test_the_end_is_a_word_of_what_has_ended_alone() -> None:
    ended, cut = rewarded(Reward(), eos=True), rewarded(Reward(), eos=True, ended=False)
    assert (np.abs(ended - cut) > 1e-3).mean() > 0.9
    assert (rewarded(Reward(), eos=False) == rewarded(Reward(), eos=False, ended=False)).all()


def test_bleu_is_that_of_pycocoevalcap() -> None:
    found = rewarded(Reward(cider=0.0, bleu4=1.0), eos=True)
    references, candidates = captions(0)
    for image in range(IMAGES):
        for sample, caption in enumerate(candidates[image]):
            scorer = BleuScorer(n=4)
            scorer += (_text(caption), [_text(reference) for reference in references[image]])
            _, (*_, expected) = scorer.compute_score(option="closest")
            assert found[image, sample] == pytest.approx(expected[0], rel=1e-9, abs=1e-15)
            assert found[image, 4] == pytest.approx(1) or len(references[image][0]) < 3


def _text(caption: Caption) -> str:
    return " ".join(map(str, [*caption, EOS]))


def test_weights_add_up() -> None:
    both = rewarded(Reward(cider=0.5, bleu4=2.0), eos=True)
    parts = 0.5 * rewarded(Reward(), eos=True) + 2 * rewarded(Reward(cider=0.0, bleu4=1.0), eos=True)
    np.testing.assert_allclose(both, parts, rtol=1e-14)


def test_an_image_has_the_same_reward_in_every_batch() -> None:
    reward = Reward(bleu4=1.0)
    whole = rewarded(reward, eos=True)
    tokens = given(captions(0)[1], ended=True)
    for image in (7, 0, 39):
        assert (reward(np.array([image]), tokens[[image]]) == whole[[image]]).all()
    assert (reward(np.array([7, 7, 3]), tokens[[7, 7, 3]]) == whole[[7, 7, 3]]).all()


def test_frequencies_are_known_by_their_digest() -> None:
    def digest(references: list[list[Caption]], eos: bool = True) -> str:
        reward = Reward()
        reward.prepare(references, V, eos)
        return reward.frequencies.digest

    references, _ = captions(0)
    assert digest(references) == digest([list(reversed(image)) for image in references])
    assert len({digest(references), digest(references, eos=False), digest(references[1:])}) == 3


def test_a_vocabulary_too_large_for_exact_keys_has_no_collisions_that_occur() -> None:
    """Keys are then taken modulo 2^64; words far apart, whose keys share low digits, still differ."""
    reward = Reward()
    words = [4 + 2**k for k in range(4, 19)]
    reward.prepare([[[a, b, 7, 8]] for a in words for b in words], 2**20 - 1, eos=False)
    singles, pairs = len(words) + 2, len(words) ** 2 + len(words) + 1
    assert len(reward.frequencies.keys) == singles + pairs + len(words) ** 2 + len(words) + len(words) ** 2


def test_without_the_end_a_fragment_is_better_than_a_guess() -> None:
    """Of a scene that is as likely at each of four sides: it ends behind "the", where the word would be a guess.

    40 scenes "a X on the left", or right, top, bottom, with two references each.
    """
    a, on, the, there, left, right, top, bottom = range(4, 12)
    sides = (left, right, top, bottom)

    def scene(x: int, side: int) -> list[Caption]:
        return [[a, x, on, the, side], [there, a, x, on, the, side]]

    images = [scene(x, side) for x in range(12, 22) for side in sides]
    guess, fragment = [there, a, 12, on, the, left, EOS], [there, a, 12, on, the, EOS, PAD]
    expected = {}
    for eos in (True, False):
        reward = Reward()
        reward.prepare(images, 22, eos)
        expected[eos] = reward(np.arange(4), np.array([[guess, fragment]] * 4)).mean(axis=0)
    assert expected[False][1] > expected[False][0]
    assert expected[True][1] < expected[True][0]
