"""Trains a captioner and tests it: `python -m captioning.run model=spatial_transformer`.

What is wrong with the settings is said before the libraries are imported that training needs, as far as that can be.
"""

from omegaconf import DictConfig

from captioning.config.check import check
from captioning.config.command import command, start
from captioning.config.registry import CONF
from captioning.runs.debug import apply_debug


@command(CONF / "config.yaml")
def main(config: DictConfig) -> float | None:
    """Trains and tests as `config` says; returns the best validation score, for sweeps."""
    apply_debug(config)
    check(config)
    from captioning.work.run import train  # here, because PyTorch and Lightning take seconds

    return train(config)


if __name__ == "__main__":
    start(main)
