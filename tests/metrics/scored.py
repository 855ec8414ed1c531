"""Six images with captions, choices of them to score anew from sums of per-image numbers, and two
systems compared.
"""

import numpy as np

from captioning.metrics.contrasts import compare, measure

REFERENCES = [
    ["a dog runs across the green field", "the dog is running it looks happy", "a dog outside"],
    ["two well-dressed people are standing in front of a bus"],
    ["a red bus drives down the street", "the bus big and red"],
    [
        "children playing with a kite on the beach",
        "kids fly kites near the sea",
        "a beach with a kite",
    ],
    ["the cat"],
    ["boats in the harbour at sunset", "the sun is setting over a harbor full of boats"],
]
CANDIDATES = [
    "a canine is jogging quickly over fields",  # synonyms, stems, paraphrases
    "",
    "a red bus drives down the street",  # a reference, whole
    "kite the on beach children",
    "quantum physics",  # no match
    "boats boats boats in the harbor",
]
CHOICES = [range(6), [0, 0, 3, 5, 5, 5, 2], [2, 2], [2, 3], [4, 1], [1, 1], [3]]


def counts(choice, images):
    return np.bincount(list(choice), minlength=images).astype(float)[None]


def compared(ours, theirs):
    return compare(*(measure([scores.statistics]) for scores in (ours, theirs)))
