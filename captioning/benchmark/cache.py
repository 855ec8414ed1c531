"""Cached features in images/s, and how long training waits for them.

B images in a batch, L context vectors of D features.
"""

import io
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from captioning.backbones import Backbone
from captioning.backbones.images import ImageTransform
from captioning.benchmark.built import TrainingStep, chosen_device
from captioning.benchmark.ceilings import memory_copy
from captioning.benchmark.material import examples, photographs
from captioning.benchmark.measurement import Ceiling, Measurement
from captioning.benchmark.processes import isolated, peak_bytes
from captioning.benchmark.timing import Run, timed
from captioning.data.dataset import Inputs
from captioning.data.module import CaptionData
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError
from captioning.features.build import build_features
from captioning.features.cache import FeatureCache

STARTING = 2
"""Batches of training that do not count: the loader's processes start with the first."""


class OneFilePerImage:
    """The naive `Inputs`: `i.pt` holds the features `[L, D]` of photograph i."""

    pixels = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rows(self, indices: Sequence[int]) -> Tensor:
        """`[B, L, D]`."""
        return torch.stack([torch.load(self.folder / f"{i}.pt", weights_only=True) for i in indices])


def measure(config: DictConfig) -> Iterator[Measurement]:
    """An epoch of batches read, then training on them; the files were just written and lie in the page cache."""
    with tempfile.TemporaryDirectory() as name:
        cache, naive = features(config, Path(name))
        images, megabytes = len(cache), cache.layout.total_bytes / 1e6
        seconds, ceiling, peak = isolated(_epochs, config, cache, naive)
        epochs = {which: Run(images, seconds[which]) for which in ("ours", "naive")}
        label = f"{images} images ({megabytes:.0f} MB) in batches of {config.batch.images}"
        yield Measurement("cache", label, "images", epochs["ours"], epochs["naive"], ceiling, peak)
        ours, naively = (isolated(_training, config, inputs) for inputs in (cache, naive))
    yield Measurement(
        "cache",
        f"training on them, {config.data.num_workers} loading processes",
        "images",
        Run(config.batch.images, ours.steps),
        Run(config.batch.images, naively.steps),
        note=f"waiting for data {ours.waiting:.2%} of the time; naive {naively.waiting:.2%}",
        raw={"seconds of waiting": ours.waits, "naive seconds of waiting": naively.waits},
    )


def features(config: DictConfig, folder: Path) -> tuple[FeatureCache, OneFilePerImage]:
    """The same features of `cache.images` photographs in the project's cache and in a file for each."""
    height, width = config.context.grid
    free, needed = shutil.disk_usage(folder).free, 4 * config.cache.images * height * width * config.context.features
    if free < 2 * needed:
        raise CaptioningError(
            f"the features would take {needed / 1e9:.2f} GB of the {free / 1e9:.2f} GB free in {folder.parent}, more "
            "than half: choose another folder (TMPDIR=FOLDER) or smaller sizes (cache.images)"
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
    settings["max_words"] = config.data.max_words
    return CaptionData({"train": made}, {"train": inputs}, vocabulary, **settings, num_workers=num_workers)


def _epochs(config: DictConfig, ours: Inputs, naive: Inputs) -> tuple[dict[str, list[float]], Ceiling, int | None]:
    """Seconds of whole epochs in this process, the copy that they are measured against, and ours' peak memory."""
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
    """Steps of training on a loader's batches: seconds until each batch came, and until it was learnt from too."""

    waits: list[float]
    steps: list[float]

    @property
    def waiting(self) -> float:
        """The share of the time, 0-1."""
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
