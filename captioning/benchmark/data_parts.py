"""Parts of the benchmark that read data from disk: cached features, and a data set of the size of
COCO.
"""

import io
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stderr
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from omegaconf import DictConfig
from torch import nn

from captioning.backbones import Backbone
from captioning.backbones.images import ImageTransform
from captioning.benchmark.material import examples, photographs, sentences, training_step
from captioning.benchmark.measure import CPU, Measurement, Run, Variants, compare, isolated
from captioning.benchmark.naive import OneFilePerImage
from captioning.data.batch import Batch
from captioning.data.dataset import Inputs
from captioning.data.example import Splits
from captioning.data.photographs import fingerprints
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.reading import read
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError
from captioning.features.build import build_features, layout_of
from captioning.features.cache import (
    CHECKSUM,
    CHECKSUMS,
    DATA,
    SCALE_SAMPLE,
    FeatureCache,
    cache_key,
    checksum,
    row_origins,
)
from captioning.machine import device_called

if TYPE_CHECKING:
    from captioning.data.module import CaptionData

STARTING = 2  # batches of training that do not count: the loader's processes start with the first
ANNOTATIONS = "dataset_coco.json"


def cache(config: DictConfig) -> Iterator[Measurement]:
    """Read an epoch of batches, then train on them; the files lie in the page cache."""
    with tempfile.TemporaryDirectory() as folder:
        ours, naive = features(config, Path(folder))
        images = len(ours)
        name = (
            f"{images} images ({ours.layout.total_bytes / 1e6:.0f} MB) in batches of "
            f"{config.batch.images}"
        )
        row = Measurement("cache", name, "images")
        yield compare(
            row, partial(_epochs, config, ours, naive), (images, images), config.repeats, 1
        )
        (waits, steps), (naive_waits, naive_steps) = (
            isolated(_fed, config, inputs) for inputs in (ours, naive)
        )
    yield Measurement(
        "cache",
        f"training on them, {config.data.num_workers} loading processes",
        "images",
        Run(config.batch.images, steps),
        Run(config.batch.images, naive_steps),
        note=f"waiting for data {sum(waits) / sum(steps):.2%} of the time; "
        f"naive {sum(naive_waits) / sum(naive_steps):.2%}",
        raw={"seconds of waiting": waits, "naive seconds of waiting": naive_waits},
    )


def features(config: DictConfig, folder: Path) -> tuple[FeatureCache, OneFilePerImage]:
    """Features of `cache.images` photographs in our cache, and the same in a file for each."""
    height, width = config.context.grid
    needed = (
        8 * config.cache.images * height * width * config.context.features
    )  # both, and as much left free
    if needed > shutil.disk_usage(folder).free:
        raise CaptioningError(
            f"the features would take more than half of what is free in {folder.parent} "
            f"({needed / 2e9:.2f} GB): "
            "choose another folder (TMPDIR=FOLDER) or smaller sizes (cache.images)"
        )
    network = nn.Sequential(
        nn.AdaptiveAvgPool2d((height, width)), nn.Conv2d(3, config.context.features, 1)
    )
    transform = ImageTransform(max(height, width))
    backbone = Backbone(
        "benchmark", network, config.context.features, (height, width), transform, trainable=False
    )
    with redirect_stderr(io.StringIO()):  # the progress bar
        cache = build_features(
            backbone, photographs(folder, 1, 64, 64) * config.cache.images, folder
        )
    for i in range(len(cache)):
        torch.save(torch.from_numpy(cache[i]), folder / f"{i}.pt")
    return cache, OneFilePerImage(folder)


def _loader(config: DictConfig, inputs: Inputs, workers: int) -> Iterable[Batch]:
    words = [
        [text.split() for text in texts]
        for texts in sentences(config.cache.images, config.batch.captions)
    ]
    vocabulary = Vocabulary.from_captions(
        (caption for each in words for caption in each), min_count=1
    )
    return _data(
        config, {"train": examples(words)}, {"train": inputs}, vocabulary, workers
    ).train_dataloader()


def _epochs(config: DictConfig, ours: Inputs, naive: Inputs) -> Variants:
    fast, slow = (_loader(config, inputs, 0) for inputs in (ours, naive))
    height, width = config.context.grid
    read = config.cache.images * 2 * height * width * config.context.features
    return Variants(lambda: [None for _ in fast], lambda: [None for _ in slow], CPU, read)


def _fed(config: DictConfig, inputs: Inputs) -> tuple[list[float], list[float]]:
    """Seconds of training steps: waiting for the batch, and in all."""
    device, step = device_called(config.device), training_step(config, config.precisions[0])
    waits, steps = [], []
    begin = time.perf_counter()
    for batch in islice(
        _loader(config, inputs, config.data.num_workers), STARTING + config.cache.steps
    ):
        waits.append(time.perf_counter() - begin)
        step(batch.to(device), False)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        steps.append(time.perf_counter() - begin)
        begin = time.perf_counter()
    return waits[STARTING:], steps[STARTING:]


def _data(
    config: DictConfig,
    splits: Splits,
    inputs: Mapping[str, Inputs],
    vocabulary: Vocabulary,
    workers: int,
) -> "CaptionData":
    from captioning.data.module import (
        CaptionData,
    )  # here, because Lightning takes memory that other parts measure

    settings = {"batch_size": config.batch.images, "captions_per_image": config.batch.captions}
    settings |= {"max_words": config.data.max_words, "num_workers": workers}
    return CaptionData(splits, inputs, vocabulary, **settings)


def coco(config: DictConfig) -> Iterator[Measurement]:
    """`coco.images` photographs in Karpathy's layout, with finished features in sparse files."""
    captions = config.batch.captions
    with tempfile.TemporaryDirectory() as name:
        size = isolated(_make, config, Path(name))
        begin = time.time()
        stages, started, batches, private = isolated(_until_training, config, Path(name))
    yield Measurement(
        "coco",
        f"{config.coco.images} images, {captions} captions each, {size / 1e9:.1f} GB of features",
        ours=Run(1, [started - begin]),
        note="from the start of a process to the first batch: "
        + "; ".join(f"{stage} {seconds:.2f} s" for stage, seconds in stages.items()),
        raw=stages,
    )
    first, *others = (f"{size / 1e6:.0f} MB" for size in private)
    yield Measurement(
        "coco",
        f"an epoch's batches of {config.batch.images}, {config.coco.workers} loading processes",
        "images",
        Run(config.batch.images * config.coco.batches, [batches]),
        note=f"private memory: {first} of all that is read, in the main process before it starts "
        "the others; "
        f"then {', '.join(others)} in those",
        raw={"private bytes": [float(size) for size in private]},
    )


def _coco_backbone(config: DictConfig) -> Backbone:
    grid = tuple(config.context.grid)
    torch.manual_seed(0)
    transform = ImageTransform(max(grid))
    return Backbone(
        "coco", nn.Conv2d(3, 1, 1), config.context.features, grid, transform, trainable=False
    )


def _make(config: DictConfig, folder: Path) -> int:
    """Write photographs of one byte, captions and finished caches; return the size of the features.

    A cache has numbers in the rows on which the scale is measured, and holes in the others.
    """
    texts = sentences(min(config.coco.images, 5000), config.batch.captions)
    entries = []
    for i in range(config.coco.images):
        (folder / f"{i}.jpg").write_bytes(b"x")
        captions = [{"raw": text, "tokens": text.split()} for text in texts[i % len(texts)]]
        part = {0: "test", 1: "val"}.get(i % 25, "train")
        entries.append({"filename": f"{i}.jpg", "cocoid": i, "split": part, "sentences": captions})
    (folder / ANNOTATIONS).write_text(json.dumps({"images": entries}))
    backbone, size = _coco_backbone(config), 0
    for split in KarpathyReader(folder, folder / ANNOTATIONS)().values():
        photographs = fingerprints([example.path for example in split])
        origins = row_origins(backbone.digest, "float16", photographs)
        layout = layout_of(backbone, len(split), "float16")
        shape = layout.positions, layout.dim
        row = np.random.default_rng(0).standard_normal(shape).astype(np.float16).tobytes()
        checksums = [checksum(bytes(layout.row_bytes), origin) for origin in origins]
        place = folder / cache_key(backbone.digest, "float16", photographs)
        place.mkdir()
        with (place / DATA).open("wb") as file:
            file.write(layout.header)
            file.truncate(layout.total_bytes)
            for i in (
                np.linspace(0, len(split) - 1, min(len(split), SCALE_SAMPLE))
                .round()
                .astype(int)
                .tolist()
            ):
                file.seek(len(layout.header) + i * layout.row_bytes)
                file.write(row)
                checksums[i] = checksum(row, origins[i])
        np.array(checksums, CHECKSUM).tofile(place / CHECKSUMS)
        size += layout.total_bytes
    return size


def _until_training(
    config: DictConfig, folder: Path
) -> tuple[dict[str, float], float, float, list[int]]:
    """Do what `captioning.run` does with data before its first step.

    Return seconds by stage; the time of day of the first batch; seconds of `coco.batches` more; and
    private bytes of this process before it starts others, and of each of these in the end.
    """
    stages: dict[str, float] = {}
    begin, before = time.perf_counter(), _private(os.getpid())

    def passed(stage: str) -> None:
        stages[stage] = time.perf_counter() - begin - sum(stages.values())

    splits = read(KarpathyReader(folder, folder / ANNOTATIONS))
    passed("reading")
    vocabulary = Vocabulary.from_captions(
        r.words for example in splits["train"] for r in example.references
    )
    passed("vocabulary")
    backbone = _coco_backbone(config)
    caches = {
        name: build_features(backbone, [each.path for each in split], folder)
        for name, split in splits.items()
    }
    caches["train"].scale()
    passed("features")
    data = _data(config, splits, caches, vocabulary, config.coco.workers)
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
    """Bytes that only this process holds and no file could restore."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))
