"""From logits to the log-probabilities that a search adds up."""

from collections.abc import Sequence

import torch
from torch import Tensor

from captioning.decoding.filters import Filter
from captioning.tokens import EOS


def log_probs(
    logits: Tensor, forbidden: Sequence[int], filters: Filter | None = None, history: Tensor | None = None
) -> Tensor:
    """Log-softmax over `[B, N, V]`, then minus infinity at what is forbidden.

    At least single precision, whatever the model's. The probabilities of the other words are not raised in place of
    the forbidden ones, so that a caption's score is the model's own.

    Args:
        logits: `[B, N, V]`.
        forbidden: ids that are never generated.
        filters: what depends on `history`, the ids generated so far, `[B, N, T]`. Where nothing is left of a
            hypothesis, EOS is, with the model's probability.
    """
    result = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    eos = result[..., EOS].clone()
    result[..., list(forbidden)] = float("-inf")
    if filters is not None:
        assert history is not None
        result = filters(result, history)
        nothing = (result == float("-inf")).all(dim=-1)
        result[..., EOS] = torch.where(nothing, eos, result[..., EOS])
    return result
