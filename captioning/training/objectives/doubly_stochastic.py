"""Doubly stochastic regularisation: every location is to be attended to about once (Xu et al. 2015, Eq. 14).

B images, N captions per image, C prediction steps, L context vectors.
"""

from torch import Tensor


def doubly_stochastic(attention: Tensor, real: Tensor, mask: Tensor | None = None) -> Tensor:
    """sum_i^L (1 - sum_t^C alpha_ti)^2, summed over captions.

    Args:
        attention: alpha, `[B, N, C, L]`.
        real: `[B, N, C]` bool, the steps that count; a caption without one is padding and adds nothing.
        mask: `[B, L]` bool, the locations that count; None: all.
    """
    seen = (attention * real[..., None]).sum(dim=2)  # [B, N, L]
    penalty = (1 - seen).square()
    if mask is not None:
        penalty = penalty * mask[:, None]
    return (penalty.sum(dim=-1) * real.any(dim=-1)).sum()
