"""Dropout that can be seen and repeated."""

from typing import Any

import pytest
import torch
from models.captioners import repeatable
from torch import Tensor
from torch.nn import functional as F

from captioning.models import recurrent, transformer
from captioning.models.parts import encoders, layers


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, ...], float]]:
    """Shape and probability of each use of dropout, which becomes `repeatable`."""
    calls: list[tuple[tuple[int, ...], float]] = []

    def visible(x: Tensor, p: float, training: bool) -> Tensor:
        if not training or p == 0.0:
            return x
        calls.append((tuple(x.shape), p))
        return repeatable(x)

    def refused(*_: Any, **__: Any) -> None:
        pytest.fail("dropout of another kind")

    fused = F.scaled_dot_product_attention

    def without_dropout(*args: Any, dropout_p: float = 0.0, **named: Any) -> Tensor:
        assert dropout_p == 0.0
        assert len(args) < 5
        return fused(*args, **named)

    for module in (recurrent, transformer, encoders, layers):
        monkeypatch.setattr(module, "dropout", visible)
    monkeypatch.setattr(F, "scaled_dot_product_attention", without_dropout)
    for name in ("dropout", "alpha_dropout", "dropout1d", "dropout2d", "feature_alpha_dropout"):
        monkeypatch.setattr(F, name, refused)
    monkeypatch.setattr(torch, "dropout", refused)
    monkeypatch.setattr(torch, "bernoulli", refused)
    return calls
