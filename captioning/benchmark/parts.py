"""The parts of the benchmark by name."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from omegaconf import DictConfig

from captioning.benchmark import backbone, cache, coco, decoding, scoring, startup, training
from captioning.benchmark.measurement import Measurement
from captioning.errors import CaptioningError

PARTS: Mapping[str, Callable[[DictConfig], Iterator[Measurement]]] = {
    "startup": startup.measure,
    "training": training.measure,
    "decoding": decoding.measure,
    "backbone": backbone.measure,
    "cache": cache.measure,
    "scoring": scoring.measure,
    "coco": coco.measure,
}


def check(config: DictConfig) -> None:
    """Refuses what would only fail after minutes.

    Raises:
        CaptioningError: something else than known parts is asked for, or `output` has no folder.
    """
    names = config.parts
    if isinstance(names, str) or not names or any(name not in PARTS for name in names):
        raise CaptioningError(f"parts={names} is not allowed; it must be a list of one or more of {', '.join(PARTS)}")
    if config.output is not None and not Path(config.output).absolute().parent.is_dir():
        raise CaptioningError(f"output={config.output} cannot be written: its folder does not exist")
