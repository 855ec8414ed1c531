"""The preset `debug=true`: a run so short that a model of one's own fails, or does not, within a minute."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, open_dict

from captioning.config.registry import CONF
from captioning.config.settings import each_setting
from captioning.config.types import check_value

T = TypeVar("T")


def apply_debug(config: DictConfig) -> None:
    """Sets what `conf/debug.yaml` says where `config.debug` is true and the command line says nothing else.

    Raises:
        CaptioningError: `debug` is neither true nor false.
    """
    check_value("debug", config.debug, bool)
    if not config.debug:
        return
    given = {each.key_or_group for each in OverridesParser.create().parse_overrides(HydraConfig.get().overrides.task)}
    with open_dict(config):
        for key, value in each_setting(OmegaConf.to_container(OmegaConf.load(CONF / "debug.yaml"))):
            if key not in given:
                OmegaConf.update(config, key, value)


def few(config: DictConfig, splits: Mapping[str, Sequence[T]]) -> Mapping[str, Sequence[T]]:
    """The splits, of which two batches are left for `debug=true`: no features are computed that nobody reads."""
    if not config.debug:
        return splits
    size = 2 * max(config.data.batch_size, config.data.eval_batch_size)
    return {name: examples[:size] for name, examples in splits.items()}
