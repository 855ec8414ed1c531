"""A synthetic data set in COCO 2014's layout, with Karpathy's splits and complete feature caches.

R rows of a cache, L context vectors of D features. Image files are empty: no run opens them.
"""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
from omegaconf import DictConfig, OmegaConf
from PIL import Image

from captioning.backbones.base import Backbone
from captioning.config.registry import build
from captioning.data.image_files import fingerprints
from captioning.data.readers.karpathy import KarpathyReader
from captioning.features.cache import (
    CHECKSUM,
    CHECKSUMS,
    DATA,
    Layout,
    cache_key,
    checksum,
    row_origins,
)

CAPTIONS = 5  # of an image
WORDS = 10_000
LENGTHS = {
    7: 0.8,
    8: 16.2,
    9: 22.3,
    10: 21.4,
    11: 15.3,
    12: 9.9,
    13: 5.8,
    14: 3.4,
    15: 1.8,
    16: 1.1,
    17: 0.7,
    18: 1.3,
}
"""Words of a caption, in percent of the 25,014 captions of COCO's validation split of 2017; 18
stands for more too.
"""
DIFFERENT = 64  # rows of random numbers, which repeat
BLOCK = 256  # rows that a thread writes at a time


def write_captions(folder: Path, sizes: dict[str, int]) -> None:
    """Write `dataset_coco.json` and empty photographs; words are drawn by Zipf's law."""
    random = np.random.default_rng(0)
    images = sum(sizes.values())
    percent = np.array(list(LENGTHS.values()))
    lengths = random.choice(list(LENGTHS), images * CAPTIONS, p=percent / percent.sum())
    chances = 1 / np.arange(1, WORDS + 1)
    words = iter(random.choice(WORDS, lengths.sum(), p=chances / chances.sum()).tolist())
    left = iter(lengths.tolist())
    (folder / "val2014").mkdir(parents=True)
    splits = (split for split, count in sizes.items() for _ in range(count))
    with (folder / "dataset_coco.json").open("w", encoding="utf-8") as file:
        file.write('{"images": [')
        for number, split in enumerate(splits):
            os.mknod(folder / "val2014" / f"{number}.jpg")
            captions = [[f"w{next(words)}" for _ in range(next(left))] for _ in range(CAPTIONS)]
            entry = {
                "filepath": "val2014",
                "filename": f"{number}.jpg",
                "cocoid": number,
                "split": split,
                "sentences": [
                    {"raw": " ".join(caption), "tokens": caption} for caption in captions
                ],
            }
            file.write((", " if number else "") + json.dumps(entry))
        file.write("]}")


def write_features(folder: Path, paths: list[Path], backbone: Backbone, threads: int) -> int:
    """Write the finished cache of random features that a run looks for; return its bytes."""
    photographs = fingerprints(paths)
    layout = Layout(len(paths), backbone.positions, backbone.dim)
    origins = row_origins(backbone.digest, photographs)
    place = folder / cache_key(backbone.digest, photographs)
    place.mkdir(parents=True)
    random = np.random.default_rng(0)
    shape = DIFFERENT, layout.positions, layout.dim
    # as after a ReLU
    rows = [
        row.tobytes()
        for row in np.maximum(random.standard_normal(shape, np.float32), 0).astype(np.float16)
    ]
    with (place / DATA).open("wb") as file, ThreadPoolExecutor(threads) as pool:
        file.write(layout.header)
        file.flush()
        starts = range(0, layout.rows, BLOCK)
        parts = pool.map(lambda start: _block(file.fileno(), layout, rows, origins, start), starts)
        checksums = [number for part in parts for number in part]
    np.array(checksums, CHECKSUM).tofile(place / CHECKSUMS)
    return len(layout.header) + layout.rows * layout.row_bytes


def _block(
    file: int, layout: Layout, rows: list[bytes], origins: np.ndarray, start: int
) -> list[int]:
    """Write the rows from `start` on; return their checksums. Writing and checksums release the
    interpreter's lock.
    """
    chosen = [(i, rows[i % DIFFERENT]) for i in range(start, min(start + BLOCK, layout.rows))]
    content, offset = (
        memoryview(b"".join(row for _, row in chosen)),
        len(layout.header) + start * layout.row_bytes,
    )
    while content:
        written = os.pwrite(file, content, offset)
        content, offset = content[written:], offset + written
    return [checksum(row, int(origins[i])) for i, row in chosen]


def make(config: DictConfig, sizes: dict[str, int], threads: int) -> dict[str, Any]:
    """Make what a run with this configuration finds; seconds of both parts, and bytes of the
    features.
    """
    begin = time.perf_counter()
    root = Path(config.data.root)
    write_captions(root, sizes)
    captions = time.perf_counter() - begin
    # weights as the run draws them, as the key of its caches depends on them
    L.seed_everything(config.seed, workers=True, verbose=False)
    backbone = build(
        "backbone", Backbone, OmegaConf.to_container(config.backbone, resolve=True), None
    )
    splits = KarpathyReader(root, root / "dataset_coco.json")()
    begin = time.perf_counter()
    folder = Path(config.cache) / "features"
    written = sum(
        write_features(folder, [e.path for e in split], backbone, threads)
        for split in splits.values()
    )
    return {"captions": captions, "features": time.perf_counter() - begin, "bytes": written}


def photographs(folder: Path, number: int, width: int, height: int) -> list[Path]:
    """JPEG files of a colour gradient with noise, about as hard to decode as a photograph of their
    size.
    """
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[0 : 1 : 1j * height, 0 : 1 : 1j * width][:, :, :, None]
    paths = []
    for i in range(number):
        first, second, third = random.uniform(0, 255, (3, 3))
        pixels = (
            first
            + rows * (second - first)
            + columns * (third - first)
            + random.normal(0, 20, (height, width, 1))
        )
        paths.append(folder / f"{i}.jpg")
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(paths[-1], quality=90)
    return paths
