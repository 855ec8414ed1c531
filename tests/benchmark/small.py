"""The benchmark's configuration with every size small."""

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from captioning.config.registry import CONF

SMALL = [
    *("device=cpu", "repeats=2", "model.d_model=16", "model.heads=2", "model.d_ff=24"),
    *("batch.images=3", "batch.captions=2", "context.grid=[3,4]", "context.features=16"),
    *("vocab_size=50", "search.widths=[3]", "search.batches=[2]"),
]


def small(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("benchmark", [*SMALL, *overrides])
