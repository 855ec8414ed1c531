"""Search over a model's verbs `start` and `step`: `search(model, context) -> list[Caption]`."""

from captioning.decoding.beam import beam_search
from captioning.decoding.caption import FORBIDDEN, Caption
from captioning.decoding.greedy import greedy

__all__ = ["FORBIDDEN", "Caption", "beam_search", "greedy"]
