"""Additive scores against w . tanh(k + q) written out, and the promise that their largest array is never held.

B images, N captions per image, L context vectors, A attention features; all different primes.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from captioning.models.parts.additive import Keys
from captioning.models.parts.additive import additive_scores as scores_of

SHAPES = [(2, 3, 5, 7), (1, 1, 1, 1), (3, 1, 11, 2)]

shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def additive_scores(keys: Tensor, query: Tensor, weight: Tensor) -> Tensor:
    return scores_of(Keys.of(keys), query, weight)


def arguments(shape: tuple[int, int, int, int], seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    b, n, length, a = shape
    generator = torch.Generator().manual_seed(seed)
    sizes = ((b, length, a), (b, n, a), (a,))
    return tuple(torch.randn(size, generator=generator, dtype=torch.float64).requires_grad_() for size in sizes)  # type: ignore[return-value]


def written_out(keys: Tensor, query: Tensor, weight: Tensor) -> Tensor:
    return torch.einsum("bnla,a->bnl", (keys[:, None] + query[:, :, None]).tanh(), weight)


def assert_same_with_gradients(found: Tensor, expected: Tensor, leaves: tuple[Tensor, ...]) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    generator = torch.Generator().manual_seed(1)
    gradient = torch.randn(found.shape, generator=generator, dtype=found.dtype)
    pairs = torch.autograd.grad(found, leaves, gradient), torch.autograd.grad(expected, leaves, gradient)
    for leaf, ours, theirs in zip(leaves, *pairs, strict=True):
        assert ours.shape == leaf.shape
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_scores_by_hand() -> None:
    keys, query, weight = (
        torch.tensor([[[0.5, -1.0], [2.0, 0.0]]]),
        torch.tensor([[[0.25, 1.0]]]),
        torch.tensor([3, -2]),
    )
    scores = additive_scores(keys, query, weight)
    expected = [3 * math.tanh(0.75) - 2 * math.tanh(0.0), 3 * math.tanh(2.25) - 2 * math.tanh(1.0)]
    assert scores.shape == (1, 1, 2)
    assert scores.flatten().tolist() == pytest.approx(expected, abs=1e-6)


@shapes
def test_values_and_gradients_are_those_of_the_equation(shape: tuple[int, int, int, int]) -> None:
    leaves = arguments(shape)
    assert_same_with_gradients(additive_scores(*leaves), written_out(*leaves), leaves)


@shapes
def test_gradients_are_those_of_small_differences(shape: tuple[int, int, int, int]) -> None:
    assert torch.autograd.gradcheck(additive_scores, arguments(shape))


@pytest.mark.parametrize("learning", [0, 1, 2])
def test_one_argument_may_learn_alone(learning: int) -> None:
    leaves = [x.detach() for x in arguments((2, 3, 5, 7))]
    leaves[learning].requires_grad_()
    assert_same_with_gradients(additive_scores(*leaves), written_out(*leaves), (leaves[learning],))


def test_strided_arguments() -> None:
    b, n, length, a = 2, 3, 5, 7
    generator = torch.Generator().manual_seed(2)
    sizes = ((a, length, b), (n, 2 * a, b), (2 * a,))
    leaves = tuple(torch.randn(size, generator=generator, dtype=torch.float64).requires_grad_() for size in sizes)
    keys, query, weight = leaves[0].permute(2, 1, 0), leaves[1].permute(2, 0, 1)[..., 1::2], leaves[2][::2]
    assert not any(x.is_contiguous() for x in (keys, query, weight))
    assert_same_with_gradients(additive_scores(keys, query, weight), written_out(keys, query, weight), leaves)


def test_shared_arguments() -> None:
    # One array that many images or captions read must get the sum of their gradients.
    generator = torch.Generator().manual_seed(3)
    leaves = tuple(
        torch.randn(size, generator=generator, dtype=torch.float64).requires_grad_()
        for size in ((1, 5, 7), (2, 1, 7), (1,))
    )
    shared = leaves[0].expand(2, -1, -1), leaves[1].expand(-1, 3, -1), leaves[2].expand(7)
    assert_same_with_gradients(additive_scores(*shared), written_out(*shared), leaves)


def test_a_strided_gradient_arrives() -> None:
    leaves = arguments((2, 3, 5, 7))
    found, expected = (scores(*leaves).transpose(0, 2)[::2].square() for scores in (additive_scores, written_out))
    assert_same_with_gradients(found, expected, leaves)


def test_scores_have_the_precision_of_the_keys() -> None:
    keys, query, weight = (x.detach().float().requires_grad_() for x in arguments((2, 3, 5, 7)))
    half = keys.detach().bfloat16().requires_grad_()
    scores = additive_scores(half, query, weight)
    assert scores.dtype == torch.bfloat16
    scores.sum().backward()
    assert [x.grad.dtype for x in (half, query, weight)] == [torch.bfloat16, torch.float32, torch.float32]
    expected = written_out(keys, query.detach(), weight.detach())
    torch.testing.assert_close(scores.float(), expected, rtol=0, atol=0.05)


@pytest.mark.parametrize("mean", [0.02, 0.3])
def test_half_precision_rounds_a_score_as_its_own_size_asks(mean: float) -> None:
    generator = torch.Generator().manual_seed(4)
    keys, query, weight = (torch.randn(size, generator=generator) for size in ((2, 11, 512), (2, 3, 512), (512,)))
    half = [x.bfloat16() for x in (keys, query, mean + 0.03 * weight)]
    expected = written_out(*(x.double() for x in half))
    error = (additive_scores(*half).double() - expected).abs().max()
    assert error < 0.01 * expected.abs().max()


@shapes
def test_no_array_of_all_pairs_is_kept_for_the_backward_pass(shape: tuple[int, int, int, int]) -> None:
    leaves = arguments(shape)
    kept: list[Tensor] = []

    def pack(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        additive_scores(*leaves)
    # the keys' powers in place of the keys, and no copies
    assert {x.data_ptr() for x in kept[1:]} == {x.data_ptr() for x in leaves[1:]}
    assert [x.shape for x in kept] == [x.shape for x in leaves]


class Largest(TorchFunctionMode):
    """The largest number of elements that any function called under it gives."""

    elements = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.elements = max(self.elements, result.numel())
        return result


def test_on_a_cpu_the_pairs_of_one_image_exist_at_a_time() -> None:
    b, n, length, a = shape = (3, 5, 7, 11)
    leaves = arguments(shape)
    with Largest() as forward:
        scores = additive_scores(*leaves)
    with Largest() as backward, torch.no_grad():  # the function itself: the engine would leave the mode
        scores.grad_fn.apply(torch.ones(b, n, length, dtype=torch.float64))
    assert forward.elements == backward.elements == n * length * a
    with Largest() as largest:  # it sees such arrays where there are any
        written_out(*leaves)
    assert largest.elements == b * n * length * a
