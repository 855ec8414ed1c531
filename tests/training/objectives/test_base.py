"""The numbers are those of SplitMix64, which is written here once more, in whole numbers of Python
and step by step.
"""

from pathlib import Path

import pytest
import torch

from captioning.data.example import Example, Reference
from captioning.data.vocabulary import Vocabulary
from captioning.tokens import EOS, UNK
from captioning.training.objectives import BatchRandom
from captioning.training.objectives.base import TrainingData


def split_mix_64(state):
    """Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        yield z ^ (z >> 31)


def number(seed, *key):
    """The leading 24 bits of the output that the key names, level by level."""
    for part in key:
        seed = next(value for i, value in enumerate(split_mix_64(seed)) if i == part)
    return (seed >> 40) / 2**24


@pytest.mark.parametrize("seed, step", [(0, 0), (7, 1), (2**32 - 1, 997)])
def test_numbers_by_plain_integers(seed, step):
    """They depend on nothing but their key: not on the other images, or on how many captions and
    words there are.
    """
    published, index = split_mix_64(1234567), [3, 0, 811, 3]
    assert [next(published) for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]
    found = BatchRandom(seed, step, torch.tensor(index))
    assert found.uniform().tolist() == [number(seed, step, i) for i in index]
    expected = [[[number(seed, step, i, n, t) for t in range(3)] for n in range(2)] for i in index]
    assert found.uniform(2, 3).tolist() == expected


def test_numbers_are_uniform_along_every_part_of_the_key():
    many, cells = 5000, 20

    def drawn(index=1, seed=11, step=5):
        return BatchRandom(seed, step, torch.tensor([index]))

    along = [
        torch.cat([drawn(**{part: i}).uniform() for i in range(many)])
        for part in ("step", "seed", "index")
    ]
    for found in (*along, drawn().uniform(many)[0], drawn().uniform(2, many)[0, 1]):
        counts = (found * cells).long().bincount(minlength=cells)
        assert (counts.shape, found.min() >= 0) == ((cells,), True)
        # 50.8 is passed with probability 1e-4, at 19 degrees of freedom
        assert (counts - many / cells).square().sum() / (many / cells) < 50.8
        pairs = (found[:-1] - 0.5) * (found[1:] - 0.5)  # neighbours are not correlated
        assert abs(pairs.mean()) * 12 < 4 / many**0.5


def test_targets_are_counted_with_unknown_words_and_ends():
    """Of all captions, those of several images and of none too."""
    texts = [["a dog", "a cat"], [], ["dog"]]
    examples = [
        Example(i, Path(f"{i}.jpg"), tuple(Reference(text, tuple(text.split())) for text in said))
        for i, said in enumerate(texts)
    ]
    found = TrainingData(examples, Vocabulary(["a", "dog", "never"])).counts().tolist()
    assert found == [{EOS: 3, UNK: 1, 4: 2, 5: 2}.get(i, 0) for i in range(7)]
