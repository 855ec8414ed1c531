"""Photographs of one colour, and of noise; in folders that are made if need be."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image


def plain(path, size=(60, 50), colour="black"):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def noise(path, size, seed=0):
    """Which every change of quality or size alters."""
    wide, high = size
    plain(path, size)
    pixels = np.random.default_rng(seed).integers(0, 256, (high, wide, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def random_pixels(*shape):
    """The same at every call."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
