"""Adaptive attention without its sentinel: one change to Lu et al. 2017, for its contrast.

captioning run model=adaptive model.attention._target_=experiments.sentinel.no_sentinel.NoSentinel
"""

import torch
from torch import Tensor

from captioning.models.parts.sentinel import SentinelAttention


class NoSentinel(SentinelAttention):
    """The sentinel's share is 0 at every word, so that c^_t = sum_i alpha_ti v_i.

    All else is that of adaptive attention: cell, head, the mean of the image at every word, and the
    number of parameters, of which those of the sentinel do nothing.
    """

    def share(self, own: Tensor, scores: Tensor) -> Tensor:
        return torch.zeros_like(own)
