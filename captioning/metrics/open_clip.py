"""Embeddings by open_clip (the extra `clip`), from a local folder of weights."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from captioning.data.images import open_image
from captioning.pretrained.loading import load_clip
from captioning.progress import progress_bar

BATCH = 64


@torch.inference_mode()
def embed(
    weights: Path, images: Sequence[Path], texts: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Embed images and texts, in 32-bit precision: the arrays of a file of embeddings.

    Args:
        weights: a folder with `open_clip_config.json` and `open_clip_model.safetensors`, as a
            repository of the hub.
        images: B of them.
        texts: by the name of their array.
    """
    model, preprocess, tokenizer = load_clip(weights)
    everything: dict[str, Sequence[Any]] = {"images": images, **texts}
    arrays: dict[str, Any] = {}
    with progress_bar("embeddings", sum(map(len, everything.values())), "item") as bar:
        for name, items in everything.items():
            vectors = []
            for first in range(0, len(items), BATCH):
                batch = list(items[first : first + BATCH])
                if name == "images":
                    pixels = torch.stack([_pixels(file, preprocess) for file in batch])
                    vectors.append(model.encode_image(pixels).numpy())
                else:
                    vectors.append(model.encode_text(tokenizer(batch)).numpy())
                bar.update(len(batch))
            if vectors:
                arrays[name] = np.concatenate(vectors)
    return arrays | {"model": weights.name, "cut": str(tokenizer.context_length)}


def _pixels(file: Path, preprocess: Callable[..., torch.Tensor]) -> torch.Tensor:
    with open_image(file) as image:
        return preprocess(image.convert("RGB"))
