"""From logits to the log-probabilities that a search adds up."""

from collections.abc import Sequence

import torch
from torch import Tensor


def log_probs(logits: Tensor, forbidden: Sequence[int]) -> Tensor:
    """Log-softmax over `[..., V]`, then minus infinity at the forbidden ids.

    At least single precision, whatever the model's. The probabilities of the other words are not raised in place of
    the forbidden ones, so that a caption's score is the model's own.
    """
    result = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    result[..., list(forbidden)] = float("-inf")
    return result
