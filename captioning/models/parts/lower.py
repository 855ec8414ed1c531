"""Matrices in bfloat16 for decoding, which on a CPU mostly waits for weights to be read."""

from torch import Tensor, nn
from torch.nn import functional as F

SMALLEST = 2**14
"""Numbers in a matrix that is worth it."""


class LowerLinear(nn.Module):
    """A linear layer whose matrix is in bfloat16; bias and results are as they were."""

    weight: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.register_buffer("weight", linear.weight.detach().bfloat16())
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """`[..., d_in]` to `[..., d_out]`."""
        result = F.linear(x.bfloat16(), self.weight).to(x.dtype)
        return result if self.bias is None else result + self.bias


def lower(model: nn.Module, vocab_size: int) -> None:
    """Puts the matrices of a trained model into bfloat16, for decoding alone.

    The last layer, to `vocab_size` words, stays: what a search compares are small differences of large logits, and
    bfloat16 has eight significant bits.
    """
    for part in list(model.modules()):
        for name, child in part.named_children():
            if type(child) is nn.Linear and child.out_features != vocab_size and child.weight.numel() >= SMALLEST:
                setattr(part, name, LowerLinear(child))
