"""What Hydra has composed, checked against what a command knows, and as plain settings."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from captioning.config.paths import check_checkpoint
from captioning.config.signatures import check_value
from captioning.errors import CaptioningError


def check_table(table: Mapping[str, Any], config: DictConfig) -> None:
    """Checks the settings of a configuration that `table` names against its annotations; there may be others.

    Raises:
        CaptioningError: a setting is not there, or its value is not allowed.
    """
    settings = OmegaConf.to_container(config, resolve=True)
    for key, hint in table.items():
        *groups, name = key.split(".")
        node, path = settings, ""
        for group in groups:
            path = f"{path}.{group}".removeprefix(".")
            node = node.get(group)  # type: ignore[union-attr]
            check_value(path, node, dict[str, Any])
        if name not in node:  # type: ignore[operator]
            raise CaptioningError(f"{key} has to be set, if only to null: leave it where it is")
        check_value(key, node[name], hint)  # type: ignore[index,call-overload]


def check_checkpoints(config: DictConfig) -> None:
    """Refuses checkpoints of `checkpoint` and `decoding.ensemble` that are not there.

    Raises:
        CaptioningError: as for `check_checkpoint`.
    """
    members = config.decoding.get("ensemble")
    for setting in (config.checkpoint, *(members if isinstance(members, ListConfig) else ())):
        if setting is not None:
            check_checkpoint("checkpoint", setting)


def is_another_data_set(config: DictConfig) -> bool:
    """Tell whether an evaluation names a reader in the place of the run's, as `data=csv` does."""
    return "_target_" in (config.data.get("reader") or {})


def has_other_photographs(config: DictConfig) -> bool:
    """Tell whether an evaluation is of a folder, or of photographs that are changed."""
    return config.images is not None or list(config.views) != ["full"]


def settings_given(settings: DictConfig) -> dict[str, Any]:
    """The settings of a command, plain values, that are not null, and so take the place of a run's."""
    given: dict[str, Any] = _without_null(OmegaConf.to_container(settings, resolve=True))
    return given


def _without_null(node: Any) -> Any:
    pairs = ((key, _without_null(value) if isinstance(value, dict) else value) for key, value in node.items())
    return {key: value for key, value in pairs if value is not None and value != {}}
