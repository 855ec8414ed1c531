"""Speed of this machine, next to naive variants and the peak of its hardware.

`python -m experiments.throughput.benchmark`, in the folder of a clone.
"""

import sys
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import MinLen

from captioning.config.command import command, start
from captioning.config.registry import CONF
from captioning.config.settings import Settings
from captioning.config.types import BatchSize, Count, PathText
from captioning.errors import CaptioningError


class SearchSizes(Settings):
    """Sizes of the measured searches."""

    widths: Annotated[list[Count], MinLen(1)]
    """beam widths; 1 is greedy decoding"""
    batches: Annotated[list[BatchSize], MinLen(1)]
    """images per batch"""
    max_length: Count
    """predicted tokens of each caption"""


class BenchmarkSettings(Settings):
    """Settings of `benchmark.yaml` that are not of a training."""

    parts: Annotated[list[Literal["training", "decoding"]], MinLen(1)]
    """what to measure"""
    output: PathText | None
    """a JSON file for all timings"""
    device: str
    """auto, cpu or cuda"""
    repeats: Count
    """repetitions after one warm-up"""
    precisions: Annotated[list[Literal["32-true", "bf16-mixed"]], MinLen(1)]
    """precisions of training and decoding"""
    search: SearchSizes


@command(Path(__file__).with_suffix(".yaml"), BenchmarkSettings)
def main(settings: BenchmarkSettings) -> None:
    """Print a line per measurement, then all as one table; write `output`."""
    config = settings.composed
    from experiments.throughput.parts import run_benchmark  # PyTorch takes seconds

    length, limit = config.search.max_length, config.model.get("max_tokens")
    if limit is not None and length > limit:
        raise CaptioningError(
            f"search.max_length={length} exceeds model.max_tokens={limit}: raise data.max_words"
        )
    run_benchmark(config)


if __name__ == "__main__":
    sys.argv[1:1] = ["--config-dir", str(CONF)]  # of the models, objectives and optimisers
    start(main)
