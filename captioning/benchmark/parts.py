"""The parts of the benchmark by name, and what it can be told."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Interval, MinLen
from omegaconf import DictConfig, OmegaConf

from captioning.benchmark import backbone, cache, coco, decoding, scoring, startup, training
from captioning.benchmark.ceilings import DTYPES
from captioning.benchmark.measurement import Measurement
from captioning.config.registry import check_parts
from captioning.config.settings import check_table
from captioning.config.types import BatchSize, Count, Length, PathText, PixelSize, Width, Workers
from captioning.errors import CaptioningError
from captioning.tokens import NAMES

PARTS: Mapping[str, Callable[[DictConfig], Iterator[Measurement]]] = {
    "startup": startup.measure,
    "training": training.measure,
    "decoding": decoding.measure,
    "backbone": backbone.measure,
    "cache": cache.measure,
    "scoring": scoring.measure,
    "coco": coco.measure,
}


_Number = Annotated[int, Interval(ge=1, le=10_000_000)]
_Side = Annotated[int, Interval(ge=1, le=512)]
SETTINGS: Mapping[str, Any] = {
    "parts": Annotated[list[Literal[*PARTS]], MinLen(1)],  # type: ignore[valid-type]
    "output": PathText | None,
    "device": Literal["auto", "cpu", "cuda"],
    "repeats": Count,
    "context.grid": tuple[_Side, _Side],
    "context.features": Width,
    "vocab_size": Annotated[int, Interval(ge=len(NAMES) + 1, le=1_000_000)],
    "data.max_words": Length,
    "data.num_workers": Workers,
    "batch.images": BatchSize,
    "batch.captions": Count,
    "batch.words": tuple[Length, Length],
    "precisions": Annotated[list[Literal[*DTYPES]], MinLen(1)],  # type: ignore[valid-type]
    "search.widths": Annotated[list[Count], MinLen(1)],
    "search.batches": Annotated[list[BatchSize], MinLen(1)],
    "search.max_length": Length,
    "decoding.max_length": Length,
    **{f"memory.{name}": BatchSize for name in ("training_images", "images", "few_batches", "many_batches")},
    "memory.width": Count,
    "photographs.number": _Number,
    "photographs.size": tuple[PixelSize, PixelSize],
    "cache.images": _Number,
    "cache.steps": _Number,
    "scoring.captions": _Number,
    "scoring.references": Count,
    "coco.images": _Number,
    "coco.workers": Workers,
    "coco.batches": _Number,
}


def check(config: DictConfig) -> None:
    """Refuses what would only fail after minutes.

    Raises:
        CaptioningError: a setting is not allowed, there is no such device, or `output` has no folder.
    """
    check_table(SETTINGS, config)
    settings: Any = OmegaConf.to_container(config, resolve=True)
    settings["optimizer"].pop("backbone_lr", None)
    check_parts("", settings)
    shortest, longest = config.batch.words
    if shortest > longest:
        raise CaptioningError(f"batch.words={config.batch.words} is not allowed; the fewest words come first")
    if config.device == "cuda" and not torch.cuda.is_available():
        raise CaptioningError("device=cuda, and PyTorch finds no GPU here; use device=cpu or device=auto")
    if config.output is not None and not Path(config.output).absolute().parent.is_dir():
        raise CaptioningError(f"output={config.output} cannot be written: its folder does not exist")
