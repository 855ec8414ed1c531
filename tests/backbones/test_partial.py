"""Context sets that are not full, by hand."""

import pytest
import torch
from PIL import Image
from torch import Tensor

from captioning.backbones.context import on_photograph
from captioning.backbones.scratch import SmallCNN


def coverage(rows: slice, columns: slice, size: int = 12) -> Tensor:
    covered = torch.zeros(1, size, size, dtype=torch.uint8)
    covered[0, rows, columns] = 255
    return covered


@pytest.mark.parametrize(
    ("rows", "grid", "expected"),
    [
        (slice(0, 12), (4, 4), [0, 1, 2, 3]),
        (slice(2, 10), (4, 4), [1, 2]),  # the centres of 3 pixels are at 1.5, 4.5, 7.5, 10.5
        (slice(1, 11), (4, 4), [0, 1, 2, 3]),
        (slice(2, 10), (3, 3), [0, 1, 2]),  # at 2, 6 and 10: edges count
        (slice(3, 10), (3, 3), [1, 2]),
        (slice(3, 9), (3, 3), [1]),
        (slice(6, 7), (4, 4), [2]),  # no centre at all
        (slice(6, 7), (3, 3), [1]),
    ],
)
def test_a_cell_is_on_the_photograph_if_its_centre_is(rows: slice, grid: tuple[int, int], expected: list[int]) -> None:
    found = on_photograph(coverage(rows, slice(None)), grid).unflatten(1, grid)
    assert found.any(dim=2)[0].nonzero().flatten().tolist() == expected
    assert torch.equal(found.any(dim=2), found.all(dim=2))
    across = on_photograph(coverage(slice(None), rows), grid).unflatten(1, grid)
    assert torch.equal(across, found.mT)


def cnn(**settings: object) -> SmallCNN:
    torch.manual_seed(0)
    return SmallCNN(dim=7, size=12, grid=3, **settings)


def images(backbone: SmallCNN) -> Tensor:
    """A photograph of 3 to 1, and a square one, which fills its square."""
    return torch.stack([backbone.transform.read(Image.new("RGB", size, (200, 90, 9))) for size in ((30, 10), (9, 9))])


def test_a_padded_photographs_context_set_has_the_cells_on_it() -> None:
    backbone = cnn(resize="pad")
    backbone.scale.fill_(3.0)
    pixels = images(backbone)
    context = backbone.context(backbone(pixels))
    row = [False] * 3 + [True] * 3 + [False] * 3
    assert context.mask is not None
    assert context.mask.tolist() == [row, [True] * 9]
    assert torch.equal(backbone.present(pixels), context.mask)
    plain = cnn().context(cnn()(pixels[:, :3]))  # the same weights
    assert plain.mask is None
    torch.testing.assert_close(context.vectors[context.mask], 3 * plain.vectors[context.mask])
    assert not context.vectors[~context.mask].any()


def test_gradients_of_what_is_not_there_are_none() -> None:
    backbone = cnn(resize="pad")
    context = backbone.context(backbone(images(backbone)))
    context.mean().sum().backward()
    gradients = [parameter.grad for parameter in backbone.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
    assert any(gradient.any() for gradient in gradients)
