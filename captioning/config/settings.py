"""The settings of commands, judged by a table, and those of parts apart from what stands beside them."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from captioning.config.types import check_value

BESIDE = {"model": "title", "optimizer": "backbone_lr", "decoding": "select"}
"""Settings that stand beside the arguments of a part."""


def of_parts(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration whose parts have settings for their constructors alone, without those of `BESIDE`."""
    alone = {
        part: {name: value for name, value in config[part].items() if name != beside}
        for part, beside in BESIDE.items()
        if isinstance(config.get(part), Mapping)
    }
    return {**config, **alone}


def without_weights(backbone: Any) -> Any:
    """The settings of a backbone, and of those in it, that build it with random weights: no file, no download."""
    if not isinstance(backbone, Mapping):
        return backbone
    return {key: None if key == "weights" else without_weights(value) for key, value in backbone.items()}


def check_table(table: Mapping[str, Any], config: DictConfig) -> None:
    """Check the settings that `table` has types for; there may be others, and an absent one is null."""
    settings: Any = OmegaConf.to_container(config, resolve=True)
    for key, hint in table.items():
        node, groups = settings, key.split(".")
        for depth, name in enumerate(groups):
            if depth:
                check_value(".".join(groups[:depth]), node, dict[str, Any])
            node = node.get(name)
        check_value(key, node, hint)


def settings_given(settings: DictConfig) -> dict[str, Any]:
    """The settings of a command that are not null, and so replace a run's."""

    def without_null(node: Any) -> Any:
        pairs = ((key, without_null(value) if isinstance(value, dict) else value) for key, value in node.items())
        return {key: value for key, value in pairs if value is not None and value != {}}

    given: dict[str, Any] = without_null(OmegaConf.to_container(settings, resolve=True))
    return given


def is_another_data_set(config: DictConfig) -> bool:
    """Whether an evaluation has its own reader, as with `data=csv`."""
    return "_target_" in (config.data.get("reader") or {})


def has_other_photographs(config: DictConfig) -> bool:
    """Whether an evaluation is of a folder, or of changed photographs."""
    return config.images is not None or list(config.views) != ["full"]
