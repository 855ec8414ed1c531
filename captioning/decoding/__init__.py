"""Searches over a model's `start` and `step`: `search(model, context) -> list[Caption]`."""

from captioning.decoding.beam import beam_search, check_limits, diverse_beam_search
from captioning.decoding.caption import FORBIDDEN, Caption
from captioning.decoding.ensemble import Ensemble, EnsembleContext
from captioning.decoding.filters import Filter, Filters
from captioning.decoding.sampling import greedy, sample

__all__ = [
    "FORBIDDEN",
    "Caption",
    "Ensemble",
    "EnsembleContext",
    "Filter",
    "Filters",
    "beam_search",
    "check_limits",
    "diverse_beam_search",
    "greedy",
    "sample",
]
