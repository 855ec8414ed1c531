"""Dropout that can be seen and repeated."""

import pytest
import torch
from models.tensors import repeatable
from torch.nn import functional as F

from captioning.models import recurrent, transformer
from captioning.models.parts import cells, encoders, multi_head


@pytest.fixture
def dropped(monkeypatch):
    """Shape and probability of each use of dropout, which becomes `repeatable`."""
    calls = []

    def visible(x, p, training):
        if not training or p == 0.0:
            return x
        calls.append((tuple(x.shape), p))
        return repeatable(x)

    def refused(*_, **__):
        pytest.fail("dropout of another kind")

    for module in (recurrent, transformer, cells, encoders, multi_head):
        monkeypatch.setattr(module, "dropout", visible)
    monkeypatch.setattr(F, "dropout", refused)
    return calls


@pytest.fixture
def without_gradients():
    with torch.no_grad():
        yield
