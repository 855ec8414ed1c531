"""Greedy decoding."""

from collections.abc import Sequence

from pydantic import SkipValidation

from captioning.backbones.context import ContextSet
from captioning.config.types import Length, validated
from captioning.decoding.caption import FORBIDDEN, Caption
from captioning.decoding.filters import Filter
from captioning.decoding.generate import generate
from captioning.models.protocol import Captioner


@validated
def greedy(
    model: SkipValidation[Captioner],
    context: SkipValidation[ContextSet],
    max_length: Length = 15,
    forbidden: Sequence[int] = FORBIDDEN,
    filters: Filter | None = None,
) -> list[Caption]:
    """The likeliest word at every step.

    Args:
        model: anything with `start` and `step`.
        context: B images.
        max_length: the largest number of generated tokens, EOS included.
        forbidden: token ids that are never generated.
        filters: what may come next, given what came before (`captioning.decoding.filters`).

    Returns:
        B captions; the score is the sum of log-probabilities, EOS included.

    Raises:
        ValueError: a number that is not allowed.
    """
    found = generate(model, context, 1, lambda words, t: words.argmax(dim=-1), max_length, forbidden, filters)
    return [caption for (caption,) in found]
