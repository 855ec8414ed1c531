"""Adaptive attention whose sentinel has no share."""

import torch
from torch.testing import assert_close

from captioning.backbones.context import ContextSet
from captioning.models.parts.scores import AdditiveScore
from captioning.models.parts.sentinel import SentinelAttention
from experiments.sentinel.no_sentinel import NoSentinel


def test_without_a_sentinel_the_image_alone_is_read():
    """By the definition: the weights of adaptive attention, and the mean of v_i by them."""
    torch.manual_seed(0)
    sizes = {"d_context": 4, "d_query": 5, "grid": (2, 3), "score": AdditiveScore}
    with_one, without = SentinelAttention(**sizes), NoSentinel(**sizes)
    without.load_state_dict(with_one.state_dict())
    image = ContextSet(torch.randn(2, 6, 4), (2, 3))
    query = torch.randn(2, 3, 10)
    expected, found = (part(part.read(image), query) for part in (with_one, without))
    values = torch.relu(image.vectors @ without.project.weight.T + without.project.bias)
    mean = (expected.alpha[..., None] * values[:, None]).sum(dim=2)
    assert_close(found.alpha, expected.alpha)
    assert_close(found.context, mean)
    assert not torch.allclose(expected.context, mean, atol=0.01)
    assert torch.equal(found.sentinel, torch.zeros(2, 3))
