"""Resolvers of conf's interpolations, such as `${with_end:${data.max_words}}`.

Importing this module registers them.
"""

from typing import TypeVar

from omegaconf import DictConfig, OmegaConf

from captioning.errors import CaptioningError, quoted
from captioning.pretrained.library import library_digest, read_folder

T = TypeVar("T")

# tokens and their end, or BOS; None where a command has no `data.max_words`
OmegaConf.register_new_resolver(
    "with_end", lambda words: words + 1 if isinstance(words, int) else words, replace=True
)


# validations until training ends: a schedule that waits for a plateau shall lower the rate twice
OmegaConf.register_new_resolver(
    "beyond",
    lambda usual, patience: max(usual, 2 * patience + 6) if patience else usual,
    replace=True,
)


def _max_pieces(words: T, *, _root_: DictConfig) -> T | int:
    vocabulary = _root_.data.get("vocabulary")
    several = isinstance(vocabulary, DictConfig) and vocabulary.get("subwords")
    return 2 * words if several and isinstance(words, int) else words


# (D) of captions of so many words
OmegaConf.register_new_resolver("max_pieces", _max_pieces, replace=True)


def _sized(published: T, small: T, *, _root_: DictConfig) -> T:
    size = (_root_.get("model") or {}).get("size") or "published"  # null: it has one size
    if size not in ("published", "small"):
        raise CaptioningError(f"model.size={quoted(size)} is not allowed: published or small")
    return small if size == "small" else published


# `${sized:PUBLISHED,SMALL}` is one of the two sizes that models of `conf/model` have.
OmegaConf.register_new_resolver("sized", _sized, replace=True)
OmegaConf.register_new_resolver(
    "library_digest",
    lambda path: path and library_digest(read_folder("model.path", path)[0]),
    replace=True,
    use_cache=True,  # weights are large
)
# the architecture of a folder of transformers, or another one without a folder
OmegaConf.register_new_resolver(
    "architecture",
    lambda path, scratch: scratch if path is None else read_folder("model.path", path)[1],
    replace=True,
)
