"""How weights are drawn at first."""

from torch import nn


def glorot(model: nn.Module) -> None:
    """Glorot's distribution for the matrix of every linear layer of `model`, zero for its bias (D)."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
