"""What a split's photographs become for a backbone made of two."""

from pathlib import Path

import pytest
import torch
from counting import COUNT, photographs

from captioning.backbones.scratch import SmallCNN
from captioning.backbones.side_by_side import SideBySide
from captioning.data.example import Example
from captioning.features.inputs import inputs_of, to_unit_scale


def test_features_are_cached_for_each_and_brought_to_unit_scale_for_each(tmp_path: Path) -> None:
    examples = [Example(i, path, ()) for i, path in enumerate(photographs(tmp_path / "photographs"))]
    first, second = (SmallCNN(7, 12, grid, trainable=False, resize="pad") for grid in (3, 6))
    with torch.no_grad():
        first.network[-1].weight.mul_(50)
    both = SideBySide(first, second, along="set")
    inputs = inputs_of(examples, both, tmp_path, "train")
    to_unit_scale(both, inputs)
    alone = inputs_of(examples, second, tmp_path, "train")
    assert len([path for path in (tmp_path / "features").iterdir() if path.suffix == ""]) == 2
    assert first.scale < second.scale / 10
    assert second.scale.item() == pytest.approx(alone.scale())
    context = both.context(inputs.rows(range(COUNT)))
    for part in (slice(0, 9), slice(9, 45)):
        real = context.vectors[:, part][context.mask[:, part]]
        assert real.square().mean().sqrt().item() == pytest.approx(1, rel=1e-2)
    images = torch.stack([both.transform.read(example.path) for example in examples])
    torch.testing.assert_close(context.vectors, both.context(both(images)).vectors, rtol=0, atol=1e-2)
