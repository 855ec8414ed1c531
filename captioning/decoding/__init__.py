"""Searches over a model's verbs: `search(model, context) -> list[GeneratedCaption]`.

Importing this package does not import PyTorch.
"""

from captioning.config.types import validated
from captioning.decoding.caption import FORBIDDEN, GeneratedCaption
from captioning.decoding.filters import Filter, Filters, KnownWords, Words
from captioning.decoding.ranking import check_limits
from captioning.decoding.searches import beam_search, diverse_beam_search, greedy, sample

__all__ = [
    "FORBIDDEN",
    "Filter",
    "Filters",
    "GeneratedCaption",
    "KnownWords",
    "Words",
    "beam_search",
    "check_limits",
    "diverse_beam_search",
    "greedy",
    "sample",
]

# its module is copied beside exported graphs, where pydantic need not be installed
Filters.__init__ = validated(Filters.__init__)  # type: ignore[method-assign]
