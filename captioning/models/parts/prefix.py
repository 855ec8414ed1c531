"""The image as words before the words (Mokady et al. 2021, "ClipCap"; Wang et al. 2022, "GIT").

B images, N captions per image, T caption positions, t earlier ones, P prefix places, E = d_model, H
heads, A = E / H.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from captioning.models.parts.layers import EncoderLayer, LayerOutput, ReadImage
from captioning.models.parts.multi_head import KeyValue
from captioning.models.parts.numerics import dropout


class PrefixLayer(EncoderLayer):
    """Self-attention of a sequence of image and words, then feed-forward.

    The image never sees words.

    The image is a prefix that is read once for all captions, and words attend to it and to each
    other in one softmax.
    """

    def image(
        self, levels: Sequence[Tensor], scale: float | Tensor, mask: Tensor | None
    ) -> ReadImage:
        """Read the prefix, keys and values `[B, H, P, A]`.

        It is a sequence for the next layer too.
        """
        read = super().forward(levels[-1], scale, mask, need_weights=False)
        return ReadImage(KeyValue(*map(Tensor.contiguous, read.keys)), [read.hidden])

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        *,
        past: KeyValue | None,
        text_scale: float,
        text_mask: Tensor | None,
        image: KeyValue,
        image_scale: float | Tensor,
        image_mask: Tensor | None,
        need_inter: bool,
    ) -> LayerOutput:
        """Like `DecoderLayer`; the scale is that of the image for words too."""
        b, n, t, _ = x.shape
        own = self.attention.norm.before(x)
        query, *pair = (x.unflatten(0, (b, n)) for x in self.attention.project(own.flatten(0, 1)))
        keys = KeyValue(*pair).after(past)
        query = query / (image_scale[:, None] if isinstance(image_scale, Tensor) else image_scale)
        # [B, N, H, T, P]
        image_scores = (_by_image(query) @ image.key.mT).unflatten(2, (n, t)).transpose(1, 2)
        words = query @ keys.key.mT
        if image_mask is not None:
            image_scores = image_scores.masked_fill(~image_mask[:, None], float("-inf"))
        if text_mask is not None:
            words = words.masked_fill(~text_mask, float("-inf"))
        inter, text = (
            torch.cat((image_scores, words), dim=-1)
            .softmax(-1)
            .split((image_scores.shape[-1], words.shape[-1]), -1)
        )
        p, training, inter = self.attention.dropout, self.training, _by_image(inter)
        seen = (dropout(inter, p, training) @ image.value).unflatten(2, (n, t)).transpose(1, 2)
        attended = (seen + dropout(text, p, training) @ keys.value).transpose(2, 3).flatten(3)
        x = self.attention.norm.after(self.attention.output(attended), x)
        return LayerOutput(
            self.feed_forward(x), keys, text.flatten(0, 1), inter if need_inter else None
        )


def _by_image(x: Tensor) -> Tensor:
    """`[B, N, H, T, F]` to `[B, H, N T, F]`."""
    return x.transpose(1, 2).flatten(2, 3)
