"""Tensors and parts that tests of models draw, and how they are compared."""

import torch
from torch import nn


def randomised(part, std=0.3, seed=0):
    """A part in double precision, evaluating, every parameter random: biases and norms too."""
    torch.manual_seed(seed)
    for parameter in part.double().eval().parameters():
        nn.init.normal_(parameter, std=std)
    return part


def close(found, expected, atol=1e-12):
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


def normal(*shape, seed=1):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def gradient(value, model):
    """In all parameters, as one vector."""
    unused = {"allow_unused": True, "materialize_grads": True}
    slopes = torch.autograd.grad(value, list(model.parameters()), **unused)
    return torch.cat([slope.flatten() for slope in slopes])


def has_gradients(part):
    """Whether all parameters have finite gradients, and some have one that is not zero."""
    slopes = [parameter.grad for parameter in part.parameters()]
    finite = all(slope is not None and slope.isfinite().all() for slope in slopes)
    return finite and any(slope.any() for slope in slopes)


def repeatable(x):
    """In place of dropout: elementwise, so it does not mind the shape, and not linear, so it must
    be at the place.
    """
    return x * (1.5 + 0.25 * x.cos())
