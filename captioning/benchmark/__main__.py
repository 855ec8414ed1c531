"""Measure speed on this machine: `captioning benchmark`."""

from omegaconf import DictConfig

from captioning.config.command import command, start
from captioning.config.registry import CONF
from captioning.config.types import PathText


@command(CONF / "benchmark.yaml", {"output": PathText, "device": str})
def main(config: DictConfig) -> None:
    """Print a line per measurement, then all as one table; write `output`."""
    from captioning.benchmark.parts import run_benchmark  # PyTorch takes seconds

    run_benchmark(config)


if __name__ == "__main__":
    start(main)
