"""Measure speed on this machine: `python -m captioning.benchmark`."""

from typing import Annotated, Literal

from annotated_types import MinLen
from omegaconf import DictConfig
from pydantic import Field

from captioning.config.command import command, start
from captioning.config.registry import CONF
from captioning.config.settings import Settings
from captioning.config.types import Count, PathText

PARTS = ("startup", "training", "decoding", "backbone", "cache", "scoring", "coco")


class BenchmarkSettings(Settings):
    """Settings of `captioning benchmark`."""

    parts: Annotated[list[Literal[*PARTS]], MinLen(1)] = Field(  # type: ignore[valid-type]
        description="what is measured; and coco: data at that size, 700 MB of disk"
    )
    output: PathText | None = Field(description="a JSON file with every second measured")
    device: str = Field(description="auto, cpu or cuda")
    repeats: Count = Field(description="after one to warm up")


@command(CONF / "benchmark.yaml", BenchmarkSettings)
def main(config: DictConfig) -> None:
    """Print a line per measurement, then all as one table; write `output`."""
    from captioning.benchmark.parts import (
        measure,
    )  # here, because PyTorch and Lightning take seconds

    measure(config)


if __name__ == "__main__":
    start(main)
