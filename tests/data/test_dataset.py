from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from numbered import Numbered, example
from PIL import Image
from torch import Tensor

from captioning.backbones.images import ImageTransform
from captioning.data.dataset import CaptionDataset, Photographs
from captioning.data.sampler import Request
from captioning.data.vocabulary import Vocabulary
from captioning.tokens import BOS, EOS, PAD, UNK

WORDS = ["a", "b", "c", "d", "e"]


EXAMPLES = [
    example(100, "a b", "c"),
    example(101, "a b c d e a b"),  # longer than max_words
    example(102, "e d c b", "a a a a a", "x a"),
    example(103, "d", "d d", "d d d", "d d d d", "a", "b"),
]


def dataset(drop: bool, captions_per_image: int = 9, seed: int = 0, max_words: int = 4) -> CaptionDataset:
    return CaptionDataset(EXAMPLES, Numbered(), Vocabulary(WORDS), max_words, captions_per_image, drop, seed)


def test_training_drops_and_counts_images_without_usable_captions() -> None:
    data = dataset(drop=True)
    assert (len(data), data.dropped, data.positions.tolist()) == (3, 1, [0, 2, 3])
    assert data.lengths() == [2, 4, 4]


def test_a_request_counts_the_images_that_are_left() -> None:
    batch = dataset(drop=True)[Request(0, [1, 0])]
    assert batch.index.tolist() == [2, 0]  # places in the split, which the scorer counts too
    assert batch.inputs[:, 0, 0].tolist() == [2.0, 0.0]
    a, b, c, d, e = range(4, 9)
    assert batch.tokens.tolist() == [
        [[BOS, e, d, c, b, EOS], [BOS, UNK, a, EOS, PAD, PAD]],  # the caption of five words is left out
        [[BOS, a, b, EOS, PAD, PAD], [BOS, c, EOS, PAD, PAD, PAD]],
    ]


def test_exactly_max_words_is_not_too_long() -> None:
    assert dataset(drop=True, max_words=7).dropped == 0
    assert dataset(drop=True, max_words=6).dropped == 1


def test_draws_are_keyed_by_seed_epoch_and_position() -> None:
    data = dataset(drop=True, captions_per_image=2)
    draws = {epoch: tuple(r.text for r in data.chosen(3, epoch)) for epoch in range(30)}
    assert {epoch: tuple(r.text for r in data.chosen(3, epoch)) for epoch in reversed(range(30))} == draws
    assert len(set(draws.values())) > 8  # of the 15 pairs
    again = dataset(drop=False, captions_per_image=2)
    assert {epoch: tuple(r.text for r in again.chosen(3, epoch)) for epoch in range(30)} == draws
    other = dataset(drop=True, captions_per_image=2, seed=1)
    assert {epoch: tuple(r.text for r in other.chosen(3, epoch)) for epoch in range(30)} != draws
    assert all(len(set(draw)) == 2 for draw in draws.values())


def test_images_draw_apart_from_each_other() -> None:
    examples = [example(i, "a", "b", "c", "d") for i in range(20)]
    data = CaptionDataset(examples, Numbered(), Vocabulary(WORDS), 4, 2, drop_uncaptioned=True)
    assert len({tuple(r.text for r in data.chosen(i, epoch=0)) for i in range(20)}) > 3


def test_draws_do_not_depend_on_the_batch() -> None:
    """So that neither workers nor ranks change them."""
    data = dataset(drop=True, captions_per_image=2)
    for epoch in range(5):
        alone = data[Request(epoch, [2])].targets.tolist()
        together = data[Request(epoch, [0, 1, 2])].targets.tolist()
        assert together[-len(alone) :] == alone


def test_every_caption_is_drawn_alike() -> None:
    data = dataset(drop=True, captions_per_image=2)
    counts = Counter(r.text for epoch in range(600) for r in data.chosen(3, epoch))
    assert len(counts) == 6
    assert all(abs(count - 200) < 50 for count in counts.values())


def test_a_batch_says_whether_it_holds_pixels(tmp_path: Path) -> None:
    """Also where features look like pixels."""

    class Maps(Numbered):
        def rows(self, indices: Sequence[int]) -> Tensor:
            return torch.zeros(len(indices), 3, 5, 5)

    Image.new("RGB", (6, 9)).save(tmp_path / "a.png")
    for inputs in (Maps(), Photographs([tmp_path / "a.png"], ImageTransform(5))):
        data = CaptionDataset([example(0, "a")], inputs, Vocabulary(WORDS), 4, 5, drop_uncaptioned=False)
        batch = data[Request(0, [0])]
        assert batch.inputs.shape == (1, 3, 5, 5)
        assert batch.pixels is isinstance(inputs, Photographs)


@pytest.mark.parametrize("drop", [False, True])
def test_a_reference_without_words_is_not_read(drop: bool) -> None:
    examples = [example(0, "", "a")]
    data = CaptionDataset(examples, Numbered(), Vocabulary(WORDS), 4, 5, drop)
    assert data[Request(0, [0])].tokens.tolist() == [[[BOS, 4, EOS]]]
