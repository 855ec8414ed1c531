"""Resolvers of conf's interpolations, such as `${with_end:${data.max_words}}`.

Importing this module registers them.
"""

from functools import partial
from typing import TypeVar

from omegaconf import DictConfig, OmegaConf

from captioning.errors import CaptioningError, quoted
from captioning.pretrained.library import library_digest, read_folder

T = TypeVar("T")
register = partial(OmegaConf.register_new_resolver, replace=True)

# tokens and their end, or BOS; None where a command has no `data.max_words`
register("with_end", lambda words: words + 1 if isinstance(words, int) else words)


# validations until training ends: a schedule that waits for a plateau shall lower the rate twice
register("beyond", lambda usual, patience: max(usual, 2 * patience + 6) if patience else usual)


def _max_pieces(words: T, *, _root_: DictConfig) -> T | int:
    vocabulary = _root_.data.get("vocabulary")
    several = isinstance(vocabulary, DictConfig) and vocabulary.get("subwords")
    return 2 * words if several and isinstance(words, int) else words


# (D) of captions of so many words
register("max_pieces", _max_pieces)


def _sized(published: T, small: T, *, _root_: DictConfig) -> T:
    size = (_root_.get("model") or {}).get("size") or "published"  # null: it has one size
    if size not in ("published", "small"):
        raise CaptioningError(f"model.size={quoted(size)} is not allowed: published or small")
    return small if size == "small" else published


# `${sized:PUBLISHED,SMALL}` is one of the two sizes that models of `conf/model` have.
register("sized", _sized)
register(
    "library_digest",
    lambda path: path and library_digest(read_folder("model.path", path)[0]),
    use_cache=True,  # weights are large
)
# the architecture of a folder of transformers, or another one without a folder
register(
    "architecture",
    lambda path, scratch: scratch if path is None else read_folder("model.path", path)[1],
)
