"""Data at the size of COCO: seconds until training starts, and memory that no process shares.

B images in a batch, L context vectors of D features.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from omegaconf import DictConfig
from torch import nn

from captioning.backbones import Backbone
from captioning.backbones.images import ImageTransform
from captioning.benchmark.material import sentences
from captioning.benchmark.measurement import Measurement
from captioning.benchmark.processes import isolated
from captioning.benchmark.timing import Run
from captioning.data.example import Example
from captioning.data.module import CaptionData
from captioning.data.photographs import fingerprints
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.splits import read
from captioning.data.vocabulary import Vocabulary
from captioning.features.build import build_features
from captioning.features.cache import (
    CHECKSUM,
    CHECKSUMS,
    DATA,
    SCALE_SAMPLE,
    FeatureCache,
    Layout,
    cache_key,
    checksum,
    row_origins,
)

ANNOTATIONS = "dataset_coco.json"


def measure(config: DictConfig) -> Iterator[Measurement]:
    """A data set of `coco.images` photographs in Karpathy's layout with finished features, all made up, from its files.

    The file of features is sparse: all but a few rows are holes that take no room on the disk.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = isolated(_make, config, folder)
        begin = time.time()
        stages, started, batches, private = isolated(_start, config, folder)
    label = f"{config.coco.images} images, {config.batch.captions} captions each, {size / 1e9:.1f} GB of features"
    spent = "; ".join(f"{stage} {seconds:.2f} s" for stage, seconds in stages.items())
    yield Measurement(
        "coco",
        label,
        ours=Run(1, [started - begin]),
        note=f"from the start of a process to the first batch: {spent}",
        raw={**stages},
    )
    yield Measurement(
        "coco",
        f"an epoch's batches of {config.batch.images}, {config.coco.workers} loading processes",
        "images",
        Run(config.batch.images * config.coco.batches, [batches]),
        note=f"memory that is no other process's: {_megabytes(private[0])} of all that is read, in the main process "
        f"before it starts the others; then {', '.join(map(_megabytes, private[1:]))} in those",
        raw={"private bytes": [float(x) for x in private]},
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


def _backbone(config: DictConfig) -> Backbone:
    grid = tuple(config.context.grid)
    transform = ImageTransform(max(grid))
    torch.manual_seed(0)
    return Backbone("coco", nn.Conv2d(3, 1, 1), config.context.features, grid, transform, trainable=False)


def _reader(folder: Path) -> KarpathyReader:
    return KarpathyReader(folder, folder / ANNOTATIONS)


def _make(config: DictConfig, folder: Path) -> int:
    """Writes photographs of one byte, captions and features; gives the size of the features."""
    images = config.coco.images
    texts = sentences(min(images, 5000), config.batch.captions)
    entries = []
    for i in range(images):
        split = "test" if i % 25 == 0 else "val" if i % 25 == 1 else "train"
        (folder / f"{i}.jpg").write_bytes(b"x")
        captions = [{"raw": text, "tokens": text.split()} for text in texts[i % len(texts)]]
        entries.append({"filename": f"{i}.jpg", "cocoid": i, "split": split, "sentences": captions})
    (folder / ANNOTATIONS).write_text(json.dumps({"images": entries}))
    return sum(_make_features(config, folder, split) for split in _reader(folder)().values())


def _make_features(config: DictConfig, folder: Path, split: Sequence[Example]) -> int:
    """A finished cache with numbers in the rows that the scale is measured on."""
    backbone, photographs = _backbone(config), fingerprints([example.path for example in split])
    key = cache_key(backbone.digest, "float16", photographs)
    origins = row_origins(backbone.digest, "float16", photographs)
    layout = Layout(len(split), backbone.grid[0] * backbone.grid[1], backbone.dim, backbone.grid, "float16")
    place = folder / key
    place.mkdir()
    row = np.random.default_rng(0).standard_normal((layout.positions, layout.dim)).astype(np.float16).tobytes()
    hole = bytes(layout.row_bytes)
    checksums = [checksum(hole, origin) for origin in origins]
    with (place / DATA).open("wb") as file:
        file.write(layout.header)
        file.truncate(layout.total_bytes)
        for i in np.linspace(0, len(split) - 1, min(len(split), SCALE_SAMPLE)).round().astype(int).tolist():
            file.seek(layout.total_bytes - (len(split) - i) * layout.row_bytes)
            file.write(row)
            checksums[i] = checksum(row, origins[i])
    np.array(checksums, CHECKSUM).tofile(place / CHECKSUMS)
    return layout.total_bytes


def _start(config: DictConfig, folder: Path) -> tuple[dict[str, float], float, float, list[int]]:
    """What `captioning.run` does with data before its first step.

    Returns:
        Seconds by stage; the time of day when the first batch was there; seconds of `coco.batches` more; and bytes that
        only this process holds before it starts others, and that each of these holds in the end.
    """
    stages, begin, before = {}, time.perf_counter(), _private(os.getpid())

    def passed(stage: str) -> None:
        nonlocal begin
        now = time.perf_counter()
        stages[stage], begin = now - begin, now

    splits = read(_reader(folder))
    passed("reading")
    vocabulary = Vocabulary.from_captions(r.words for example in splits["train"] for r in example.references)
    passed("vocabulary")
    backbone = _backbone(config)
    caches: dict[str, FeatureCache] = {
        name: build_features(backbone, [example.path for example in split], folder) for name, split in splits.items()
    }
    caches["train"].scale()
    passed("features")
    settings = {"batch_size": config.batch.images, "captions_per_image": config.batch.captions}
    settings |= {"max_words": config.data.max_words, "num_workers": config.coco.workers}
    data = CaptionData(splits, caches, vocabulary, **settings)
    passed("captions")
    private = [_private(os.getpid()) - before]
    loader = data.train_dataloader()
    list(loader.sampler)
    passed("the order of an epoch")
    batches = iter(loader)
    next(batches)
    passed("first batch")
    started = time.time()
    for _ in islice(batches, config.coco.batches):
        pass
    passed("batches")
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    private += [_private(int(child)) for child in children]
    return stages, started, stages.pop("batches"), private


def _private(process: int) -> int:
    """Bytes that only this process holds and that no file could give back."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))
