"""A subset of the training images, to measure what more of them are worth."""

from collections.abc import Iterable
from hashlib import sha256

import numpy as np

from captioning.config.types import Config
from captioning.data.columns import take
from captioning.data.example import Splits, reference_words
from captioning.errors import CaptioningError


def training_subset(splits: Splits, data: Config) -> tuple[Splits, Iterable[tuple[str, ...]]]:
    """Keep `data.train_images` of the training images, in their order; all if it is None.

    Images are taken from a pseudorandom order that depends on their ids and
    `data.train_images_seed` alone: with one seed, a smaller subset is part of every larger one.

    Returns:
        The splits, and the words of each caption that the vocabulary is built from: those of the
        subset, or of the whole split with `data.vocabulary_images=all`.

    Raises:
        CaptioningError: the split has fewer images.
    """
    everything, size = splits["train"], data.get("train_images")
    if size is None:
        return splits, reference_words(everything)
    if size > len(everything):
        raise CaptioningError(
            f"data.train_images={size}: the training split has {len(everything):,} images"
        )

    seed = data["train_images_seed"]
    texts = (f"{seed} {example.image_id}".encode() for example in everything)
    order = np.fromiter((sha256(text).digest() for text in texts), "S32")
    subset = take(everything, np.sort(np.argsort(order, kind="stable")[:size]))
    of_vocabulary = everything if data["vocabulary_images"] == "all" else subset
    return {**splits, "train": subset}, reference_words(of_vocabulary)
