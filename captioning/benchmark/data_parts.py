"""Parts of the benchmark that read data from disk: cached features, and a data set of the size of COCO."""

import io
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from captioning.backbones import Backbone
from captioning.backbones.images import ImageTransform
from captioning.benchmark.built import TrainingStep, chosen_device
from captioning.benchmark.material import examples, photographs, sentences
from captioning.benchmark.measure import Ceiling, Measurement, Run, isolated, memory_copy, peak_bytes, timed
from captioning.data.dataset import Inputs
from captioning.data.example import Example
from captioning.data.module import CaptionData
from captioning.data.photographs import fingerprints
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.splits import read
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError
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

STARTING = 2  # batches of training that do not count: the loader's processes start with the first
ANNOTATIONS = "dataset_coco.json"


class OneFilePerImage:
    """Naive `Inputs`: `i.pt` holds the features `[L, D]` of photograph i."""

    pixels = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rows(self, indices: Sequence[int]) -> Tensor:
        """`[B, L, D]`."""
        return torch.stack([torch.load(self.folder / f"{i}.pt", weights_only=True) for i in indices])


def cache(config: DictConfig) -> Iterator[Measurement]:
    """Read an epoch of batches, then train on them; the files lie in the page cache."""
    with tempfile.TemporaryDirectory() as name:
        ours, naive = features(config, Path(name))
        images, megabytes = len(ours), ours.layout.total_bytes / 1e6
        seconds, ceiling, peak = isolated(_epochs, config, ours, naive)
        epochs = {which: Run(images, seconds[which]) for which in ("ours", "naive")}
        label = f"{images} images ({megabytes:.0f} MB) in batches of {config.batch.images}"
        yield Measurement("cache", label, "images", epochs["ours"], epochs["naive"], ceiling, peak)
        fed, fed_naively = (isolated(_training, config, inputs) for inputs in (ours, naive))
    yield Measurement(
        "cache",
        f"training on them, {config.data.num_workers} loading processes",
        "images",
        Run(config.batch.images, fed.steps),
        Run(config.batch.images, fed_naively.steps),
        note=f"waiting for data {fed.waiting:.2%} of the time; naive {fed_naively.waiting:.2%}",
        raw={"seconds of waiting": fed.waits, "naive seconds of waiting": fed_naively.waits},
    )


def features(config: DictConfig, folder: Path) -> tuple[FeatureCache, OneFilePerImage]:
    """Features of `cache.images` photographs in our cache, and the same in a file for each."""
    height, width = config.context.grid
    needed = 8 * config.cache.images * height * width * config.context.features  # both, and as much left free
    if needed > shutil.disk_usage(folder).free:
        raise CaptioningError(
            f"the features would take more than half of what is free in {folder.parent} ({needed / 2e9:.2f} GB): "
            "choose another folder (TMPDIR=FOLDER) or smaller sizes (cache.images)"
        )
    network = nn.Sequential(nn.AdaptiveAvgPool2d((height, width)), nn.Conv2d(3, config.context.features, 1))
    transform = ImageTransform(max(height, width))
    backbone = Backbone("benchmark", network, config.context.features, (height, width), transform, trainable=False)
    (path,) = photographs(folder, 1, 64, 64)
    with redirect_stderr(io.StringIO()):  # the progress bar
        cache = build_features(backbone, [path] * config.cache.images, folder)
    for i in range(len(cache)):
        torch.save(torch.from_numpy(cache[i]), folder / f"{i}.pt")
    return cache, OneFilePerImage(folder)


def _data(config: DictConfig, inputs: Inputs, num_workers: int) -> CaptionData:
    made = examples(config.cache.images, config.batch.captions)
    vocabulary = Vocabulary.from_captions((r.words for e in made for r in e.references), min_count=1)
    settings = {"batch_size": config.batch.images, "captions_per_image": config.batch.captions}
    settings |= {"max_words": config.data.max_words, "num_workers": num_workers}
    return CaptionData({"train": made}, {"train": inputs}, vocabulary, **settings)


def _epochs(config: DictConfig, ours: Inputs, naive: Inputs) -> tuple[dict[str, list[float]], Ceiling, int | None]:
    """Seconds of epochs in this process, the memory copy as their ceiling, and our peak memory."""
    cpu = torch.device("cpu")
    loaders = {name: _data(config, x, 0).train_dataloader() for name, x in (("ours", ours), ("naive", naive))}
    for _ in loaders["ours"]:
        pass
    peak = peak_bytes(cpu)
    copy, size = memory_copy(cpu)
    actions = {name: lambda loader=loader: [None for _ in loader] for name, loader in loaders.items()}
    seconds = timed(actions | {"copy": copy}, config.repeats, cpu)
    work = config.cache.images * 2 * config.context.grid[0] * config.context.grid[1] * config.context.features
    return seconds, Ceiling("memory copy", "B", Run(size, seconds["copy"]).rate, work), peak


@dataclass(frozen=True, slots=True)
class Fed:
    """Seconds of training steps: waiting for the batch, and in all."""

    waits: list[float]
    steps: list[float]

    @property
    def waiting(self) -> float:
        """Share of the time spent waiting, 0-1."""
        return sum(self.waits) / sum(self.steps)


def _training(config: DictConfig, inputs: Inputs) -> Fed:
    device, step = chosen_device(config), TrainingStep.built(config, config.precisions[0])
    found = Fed([], [])
    begin = time.perf_counter()
    loader = _data(config, inputs, config.data.num_workers).train_dataloader()
    for number, batch in enumerate(islice(loader, STARTING + config.cache.steps)):
        came = time.perf_counter()
        step(batch.to(device))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if number >= STARTING:
            found.waits.append(came - begin)
            found.steps.append(time.perf_counter() - begin)
        begin = time.perf_counter()
    return found


def coco(config: DictConfig) -> Iterator[Measurement]:
    """A made-up data set of `coco.images` photographs in Karpathy's layout, with finished features in sparse files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = isolated(_make, config, folder)
        begin = time.time()
        stages, started, batches, private = isolated(_until_training, config, folder)
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
        note=f"private memory: {_megabytes(private[0])} of all that is read, in the main process "
        f"before it starts the others; then {', '.join(map(_megabytes, private[1:]))} in those",
        raw={"private bytes": [float(x) for x in private]},
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


def _coco_backbone(config: DictConfig) -> Backbone:
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
    backbone, photographs = _coco_backbone(config), fingerprints([example.path for example in split])
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


def _until_training(config: DictConfig, folder: Path) -> tuple[dict[str, float], float, float, list[int]]:
    """Do what `captioning.run` does with data before its first step.

    Return seconds by stage; the time of day of the first batch; seconds of `coco.batches` more; and private bytes of
    this process before it starts others, and of each of these in the end.
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
    backbone = _coco_backbone(config)
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
    """Bytes that only this process holds and no file could restore."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))
