"""Dropout that can be seen and repeated."""

from typing import Any

import pytest
from models.captioners import repeatable
from torch import Tensor
from torch.nn import functional as F

from captioning.models import recurrent, transformer
from captioning.models.parts import encoders, multi_head


@pytest.fixture
def dropped(monkeypatch):
    """Shape and probability of each use of dropout, which becomes `repeatable`."""
    calls: list[tuple[tuple[int, ...], float]] = []

    def visible(x: Tensor, p: float, training: bool) -> Tensor:
        if not training or p == 0.0:
            return x
        calls.append((tuple(x.shape), p))
        return repeatable(x)

    def refused(*_: Any, **__: Any) -> None:
        pytest.fail("dropout of another kind")

    for module in (recurrent, transformer, encoders, multi_head):
        monkeypatch.setattr(module, "dropout", visible)
    monkeypatch.setattr(F, "dropout", refused)
    return calls
