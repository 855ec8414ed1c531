"""Synthetic benchmark inputs, made from a seed.

B images, N captions per image, L context vectors of D features, V words.
"""

from pathlib import Path

import numpy as np
import torch
from omegaconf import DictConfig
from PIL import Image

from captioning.data.batch import Batch, collate
from captioning.data.example import Example, Reference
from captioning.data.vocabulary import Vocabulary
from captioning.tokens import NAMES
from captioning.training.objectives import TrainingData

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
WORDS = 2500
TOPIC = 12  # words that the captions of one image share


def random_batch(config: DictConfig, images: int, captions: int) -> Batch:
    """Unit-scale features `[B, L, D]` and captions of evenly drawn lengths and words."""
    words = _captions(config, images, captions)
    positions = config.context.grid[0] * config.context.grid[1]
    return collate(range(images), torch.randn(images, positions, config.context.features), words)


def random_task(config: DictConfig, images: int, captions: int) -> TrainingData:
    """Training set of those captions, for objectives that ask for it."""
    vocabulary = Vocabulary([f"w{i}" for i in range(len(NAMES), config.vocab_size)])
    texts = [[[f"w{i}" for i in ids] for ids in row] for row in _captions(config, images, captions)]
    return TrainingData(_examples(texts), vocabulary)


def _captions(config: DictConfig, images: int, captions: int) -> list[list[list[int]]]:
    torch.manual_seed(0)
    shortest, longest = config.batch.words
    lengths = torch.randint(shortest, longest + 1, (images, captions)).tolist()
    return [[torch.randint(len(NAMES), config.vocab_size, (k,)).tolist() for k in row] for row in lengths]


def photographs(folder: Path, number: int, width: int, height: int) -> list[Path]:
    """JPEG files of a colour gradient with noise, about as hard to decode as a photograph of their size."""
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[0 : 1 : 1j * height, 0 : 1 : 1j * width][:, :, :, None]
    paths = []
    for i in range(number):
        first, second, third = random.uniform(0, 255, (3, 3))
        pixels = first + rows * (second - first) + columns * (third - first) + random.normal(0, 20, (height, width, 1))
        paths.append(folder / f"{i}.jpg")
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(paths[-1], quality=90)
    return paths


def sentences(images: int, captions: int) -> list[list[str]]:
    """For each image its captions: 6 to 14 made-up words, frequent and rare as in English, half of them of one topic.

    Captions of an image have words and word order in common, as references and a good caption do.
    """
    random = np.random.default_rng(0)
    names = _words(random)
    zipf = 1 / np.arange(1, WORDS + 1)
    zipf /= zipf.sum()
    made = []
    for _ in range(images):
        topic = random.choice(WORDS, TOPIC, p=zipf)
        texts = []
        for length in random.integers(6, 15, captions):
            words = random.choice(WORDS, length, p=zipf)
            shared = random.random(length) < 0.5
            words[shared] = np.resize(topic, length)[shared]
            texts.append(" ".join(names[word] for word in words))
        made.append(texts)
    return made


def examples(images: int, captions: int) -> list[Example]:
    """Examples captioned by `sentences`."""
    return _examples([[text.split() for text in texts] for texts in sentences(images, captions)])


def _examples(captions: list[list[list[str]]]) -> list[Example]:
    # their photographs do not exist and are never opened
    return [
        Example(i, Path(f"{i}.jpg"), tuple(Reference(" ".join(words), tuple(words)) for words in each))
        for i, each in enumerate(captions)
    ]


def _words(random: np.random.Generator) -> list[str]:
    """Different words of one to three syllables, the frequent ones short."""
    words: dict[str, None] = {}
    while len(words) < WORDS:
        syllables = 1 + (len(words) >= 40) + (len(words) >= 400)
        words["".join(random.choice(SYLLABLES, syllables))] = None
    return list(words)
