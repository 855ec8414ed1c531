import pytest
import torch

from captioning.data.batch import Batch, collate
from captioning.tokens import BOS, EOS, PAD


@pytest.fixture
def batch() -> Batch:
    """Three images with two, no and one caption."""
    inputs = torch.arange(3 * 2 * 5).reshape(3, 2, 5).float()
    return collate([7, 11, 2], inputs, [[[5, 6, 7], [8]], [], [[9, 4]]])


def test_tokens_by_hand(batch: Batch) -> None:
    assert batch.index.tolist() == [7, 11, 2]
    assert batch.tokens.tolist() == [
        [[BOS, 5, 6, 7, EOS], [BOS, 8, EOS, PAD, PAD]],
        [[PAD] * 5, [PAD] * 5],
        [[BOS, 9, 4, EOS, PAD], [PAD] * 5],
    ]
    assert batch.tokens.dtype == torch.int64
    assert batch.inputs.shape == (3, 2, 5)


def test_sources_targets_and_word_index_by_hand(batch: Batch) -> None:
    # B, N, C = 3, 2, 4: caption (b, n) has the flattened places 8 b + 4 n + 0..3
    assert batch.word_index.tolist() == [0, 1, 2, 3, 4, 5, 16, 17, 18]
    assert batch.targets.tolist() == [5, 6, 7, EOS, 8, EOS, 9, 4, EOS]
    assert batch.sources.shape == (3, 2, 4)
    read = batch.sources.flatten()[batch.word_index]
    assert read.tolist() == [BOS, 5, 6, 7, BOS, 8, BOS, 9, 4]
    assert batch.captions.item() == 3


def test_to_moves_everything_and_keeps_the_original(batch: Batch) -> None:
    moved = batch.to("meta")
    assert all(getattr(moved, name).is_meta for name in ("index", "inputs", "tokens", "word_index"))
    assert not batch.tokens.is_meta
    assert batch.to(torch.device("cpu"), non_blocking=True).tokens.tolist() == batch.tokens.tolist()


@pytest.mark.parametrize("pixels", [False, True])
def test_what_the_inputs_are_is_kept(pixels: bool) -> None:
    batch = collate([0], torch.zeros(1, 3, 2, 2), [[]], pixels)
    assert batch.to("meta").pixels is pixels
    assert batch.tokens.tolist() == [[[PAD, PAD]]]
    assert batch.targets.shape == (0,)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="page-locked memory needs a GPU")
def test_pinned(batch: Batch) -> None:
    pinned = batch.pin_memory()
    assert all(getattr(pinned, name).is_pinned() for name in ("index", "inputs", "tokens", "word_index"))
    assert pinned.targets.tolist() == batch.targets.tolist()
