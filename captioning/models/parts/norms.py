"""Normalisation of features: over those of a vector, and over the vectors of a batch.

B images, L context vectors, E features.
"""

from torch import Tensor, nn

from captioning.models.parts.numerics import at_least_single


class LayerNorm(nn.LayerNorm):
    """Layer normalisation; with `deviation` g (x - mean) / (s + 1e-6) + b.

    s is the standard deviation of a sample of E, as in the code of Rush, "The Annotated
    Transformer", 2018, and in captioners that were built on it.
    """

    def __init__(self, features: int, deviation: bool = False):
        super().__init__(features)
        self.deviation = deviation

    def forward(self, x: Tensor) -> Tensor:
        if not self.deviation:
            return super().forward(x)
        x = at_least_single(x)
        # the gradient of a root is infinite at 0, as of a masked vector
        s = x.var(-1, keepdim=True).clamp(min=1e-12).sqrt()
        return self.weight * (x - x.mean(-1, keepdim=True)) / (s + 1e-6) + self.bias


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation (Ioffe, Szegedy 2015) over the unmasked vectors of a batch.

    While it trains, each process has the statistics of its own batch, so that N processes differ
    from one.
    """

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:  # type: ignore[override]
        """`[B, L, E]` to the same, with a mask `[B, L]`."""
        if self.training and mask is not None:
            return x.masked_scatter(mask[..., None], super().forward(x[mask]))
        return super().forward(x.flatten(0, 1)).view_as(x)
