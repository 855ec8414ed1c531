"""Embeddings by open_clip (the extra `clip`), from a local folder of weights.

The library is given settings of its own networks alone, so that it opens no other folder.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from captioning.data.images import open_image
from captioning.errors import CaptioningError, naming, quoted
from captioning.pretrained.allocation import AllocationLimit
from captioning.pretrained.library import check_sizes, read_settings, tensor_shapes
from captioning.progress import progress_bar
from experiments.clip_scores.metric import WEIGHTS

BATCH = 64
CONFIG, FILE = "open_clip_config.json", "open_clip_model.safetensors"
LARGEST_SIDE = 2**10  # of images, of which many are read at a time
KNOWN = (
    "model_cfg, preprocess_cfg, vision_cfg, text_cfg, embed_dim, quick_gelu, custom_text, "
    "init_logit_scale, init_logit_bias, nonscalar_logit_scale, image_size, layers, width, "
    "head_width, heads, patch_size, mlp_ratio, ls_init_value, patch_dropout, attentional_pool, "
    "attn_pooler_queries, attn_pooler_heads, no_ln_pre, final_ln_after_pool, pool_type, "
    "proj_type, proj_bias, output_tokens, context_length, vocab_size, embed_cls, pad_id, eos_id, "
    "no_causal_mask, act_kwargs, approximate, norm_kwargs, eps, size, mode, mean, std, "
    "interpolation, resize_mode, fill_color"
)
"""Settings of networks of open_clip itself; others name models of timm and of `transformers`."""


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


def check_folder(folder: Path) -> Path:
    """Refuse a folder without weights."""
    if not (folder / FILE).is_file():
        raise CaptioningError(f"{WEIGHTS}={folder} has no {FILE}")
    return folder


def check_network(given: str, file: Path, shapes: Sequence[Sequence[int]]) -> None:
    """Refuse settings of a network that are not known, or that are far larger than its weights.

    Args:
        given: the setting that names the folder, and its value.
        file: with the settings.
        shapes: those of the weights.
    """
    content = read_settings(given, file)
    check_sizes(given, content, shapes)
    for name, value in _each_setting(content):
        if name not in KNOWN.split(", "):
            raise CaptioningError(
                f"{given} has {quoted(name)} in {file.name}, a setting that may run code of its "
                "author or load something else: use a network of open_clip itself"
            )
        if name == "image_size" and isinstance(value, int) and value > LARGEST_SIDE:
            raise CaptioningError(
                f"{given} reads images of {value} x {value} pixels; allowed are {LARGEST_SIDE}"
            )


def _each_setting(node: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values at any depth; an item of a list has the list's name."""
    below: Iterable[tuple[str, Any]] = ()
    if isinstance(node, dict):
        below = node.items()
    elif isinstance(node, list):
        below = [(name, item) for item in node]
    for own, value in below:
        yield own, value
        yield from _each_setting(value, own)


def load_clip(folder: Path) -> tuple[Any, Any, Any]:
    """Network, transform of images and tokenizer of a folder of open_clip with its weights."""
    given, shapes = f"{WEIGHTS}={check_folder(folder)}", tensor_shapes(folder)
    check_network(given, folder / CONFIG, shapes)
    try:
        import open_clip
    except ImportError as error:
        raise CaptioningError(f"{given} needs open_clip: pip install 'captioning[clip]'") from error
    logging.root.addFilter(_is_of_others)
    source = f"local-dir:{folder}"
    with naming(f"{given} cannot be loaded"), AllocationLimit.for_file(shapes):
        model, _, transform = open_clip.create_model_and_transforms(source, require_pretrained=True)
        tokenizer = open_clip.get_tokenizer(source)
    numbers = sum(tensor.numel() for tensor in model.state_dict().values())
    if numbers > 1 + sum(map(math.prod, shapes)):  # one may be new, a bias
        raise CaptioningError(f"{given} describes more positions than its weights have")
    return model.eval(), transform, tokenizer


def _is_of_others(record: logging.LogRecord) -> bool:
    """Tell whether a line of the log is not one of the fifteen of open_clip's steps."""
    return "open_clip" not in record.pathname
