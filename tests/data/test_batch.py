"""Batches of one split: tokens by hand, and the captions that each epoch draws."""

from collections import Counter

import pytest
import torch
from numbered import Numbered, example

from captioning.data.batch import BatchIndex, collate
from captioning.data.dataset import CaptionDataset
from captioning.data.vocabulary import Vocabulary
from captioning.tokens import BOS, EOS, PAD, UNK

VOCABULARY = Vocabulary(["a", "b", "c", "d", "e"])
EXAMPLES = [
    example(100, "a b", "", "c"),  # one reference has no word
    example(101, "a b c d e a b"),  # longer than max_words
    example(102, "e d c b", "a a a a a", "x a"),
    example(103, "d", "d d", "d d d", "d d d d", "a", "b"),
]


@pytest.fixture
def batch():
    """Three images with two, no and one caption."""
    inputs = torch.arange(3 * 2 * 5).reshape(3, 2, 5).float()
    return collate([7, 11, 2], inputs, [[[5, 6, 7], [8]], [], [[9, 4]]])


def test_tokens_sources_and_targets_by_hand(batch):
    assert batch.index.tolist() == [7, 11, 2]
    assert batch.tokens.tolist() == [
        [[BOS, 5, 6, 7, EOS], [BOS, 8, EOS, PAD, PAD]],
        [[PAD] * 5, [PAD] * 5],
        [[BOS, 9, 4, EOS, PAD], [PAD] * 5],
    ]
    assert batch.tokens.dtype == torch.int64
    # B, N, C = 3, 2, 4: caption (b, n) has the flattened places 8 b + 4 n + 0..3
    assert batch.word_index.tolist() == [0, 1, 2, 3, 4, 5, 16, 17, 18]
    assert batch.targets.tolist() == [5, 6, 7, EOS, 8, EOS, 9, 4, EOS]
    assert batch.sources.shape == (3, 2, 4)
    assert batch.sources.flatten()[batch.word_index].tolist() == [BOS, 5, 6, 7, BOS, 8, BOS, 9, 4]
    assert batch.captions.item() == 3
    empty = collate([0], torch.zeros(1, 2, 5), [[]])
    assert (empty.tokens.tolist(), empty.targets.shape) == ([[[PAD, PAD]]], (0,))


def dataset(examples=EXAMPLES, drop=True, most=9, seed=0, max_words=4):
    return CaptionDataset(examples, Numbered(), VOCABULARY, max_words, most, drop, seed)


def test_training_drops_and_counts_images_without_usable_captions():
    data = dataset()
    assert (len(data), data.dropped, data.positions.tolist()) == (3, 1, [0, 2, 3])
    assert data.lengths().tolist() == [2, 4, 4]
    assert [dataset(max_words=most).dropped for most in (6, 7)] == [1, 0]
    batch = data[BatchIndex(0, [1, 0])]  # counts the images that are left
    assert batch.index.tolist() == [2, 0]  # places in the split, which the scorer counts too
    assert batch.inputs[:, 0, 0].tolist() == [2.0, 0.0]
    a, b, c, d, e = range(4, 9)
    assert batch.tokens.tolist() == [
        [
            [BOS, e, d, c, b, EOS],
            [BOS, UNK, a, EOS, PAD, PAD],
        ],  # the caption of five words is left out
        [[BOS, a, b, EOS, PAD, PAD], [BOS, c, EOS, PAD, PAD, PAD]],
    ]
    assert dataset(drop=False)[BatchIndex(0, [0, 1])].tokens[1].unique().tolist() == [PAD]


def test_draws_are_keyed_by_seed_epoch_and_position():
    """So that neither workers nor ranks change them."""

    def draws(seed=0, drop=True):
        data = dataset(most=2, seed=seed, drop=drop)
        return [tuple(r.text for r in data.chosen(3, epoch)) for epoch in range(600)]

    found = draws()
    assert found == draws(drop=False) != draws(seed=1)
    assert all(len(set(draw)) == 2 for draw in found)
    assert len(set(found)) == 15  # all pairs
    counts = Counter(text for draw in found for text in draw)
    assert all(abs(count - 200) < 50 for count in counts.values())
    data = dataset(most=2)
    for epoch in range(5):
        alone = data[BatchIndex(epoch, [2])].targets.tolist()
        assert data[BatchIndex(epoch, [0, 1, 2])].targets.tolist()[-len(alone) :] == alone
    images = dataset([example(i, "a", "b", "c", "d") for i in range(20)], most=2)
    assert len({tuple(r.text for r in images.chosen(i, epoch=0)) for i in range(20)}) > 3
