"""What a configuration cannot be, refused before anything is read, downloaded or computed."""

from typing import Any

from omegaconf import DictConfig, OmegaConf

from captioning.config.early import FROM_CHECKPOINT, check_early, data_settings, with_folder
from captioning.config.optimizer import backbone_lr, optimizer_settings
from captioning.config.precision import check_precision
from captioning.config.registry import check_parts
from captioning.config.rehearsal import rehearse
from captioning.config.searches import check_decoding
from captioning.config.signatures import check_call, check_settings
from captioning.data.module import CaptionData
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError
from captioning.metrics.java import find_java
from captioning.metrics.scorer import scores_of


def check(config: DictConfig) -> None:
    """Refuses what a run would only stumble over later.

    Raises:
        CaptioningError: names the setting, or both settings, and what to change.
    """
    check_early(config)
    find_java()  # which scores need, hours of features later
    _check_values(config)
    _check_lengths(config)
    decoding: Any = OmegaConf.to_container(config.decoding, resolve=True)
    check_decoding(decoding, config.model.get("max_tokens"))
    _check_validation(config)
    check_precision(config)
    rehearse(with_folder(config))


def _check_values(config: DictConfig) -> None:
    check_call("data", CaptionData, data_settings(config))
    if config.data.vocabulary != FROM_CHECKPOINT:
        check_call("data.vocabulary", Vocabulary.from_captions, config.data.vocabulary)
    settings: dict[str, Any] = OmegaConf.to_container(with_folder(config), resolve=True)  # type: ignore[assignment]
    for place in ("backbone", "model", "decoding"):
        check_parts(place, settings[place])
    check_parts("data.reader", settings["data"]["reader"])
    del settings["decoding"]  # its words become numbers later; `check_decoding` looks at it
    backbone_lr(config)
    settings["optimizer"] = optimizer_settings(config)
    check_settings("", settings)


def _check_lengths(config: DictConfig) -> None:
    limit = config.model.get("max_tokens")
    if not isinstance(limit, int):
        return
    words = config.data.max_words
    if words + 1 > limit:
        raise CaptioningError(
            f"data.max_words={words} makes inputs of {words + 1} tokens (BOS included), "
            f"and model.max_tokens={limit} reads no more than {limit}: set model.max_tokens={words + 1} "
            f"or data.max_words={limit - 1}"
        )


def _check_validation(config: DictConfig) -> None:
    for name, callback in config.callbacks.items():
        if callback is not None and callback.get("monitor") is not None:
            _check_monitor(f"callbacks.{name}.monitor", str(callback.monitor), list(config.metrics.val))
    select = config.decoding.get("select") is not None
    if not (config.test or select):
        return
    without = "test=false" + (" and decoding.select=null" if select else "")
    every, epochs = config.trainer.check_val_every_n_epoch, config.trainer.max_epochs
    if epochs is not None and 0 <= epochs < (every or 1):
        raise CaptioningError(
            f"trainer.max_epochs={epochs} ends before the first validation (trainer.check_val_every_n_epoch={every}), "
            f"so there is no best checkpoint to test: change one of them or set {without}"
        )
    if config.trainer.limit_val_batches == 0:
        raise CaptioningError(
            f"without validation (trainer.limit_val_batches=0) there is no best checkpoint to test: set {without}"
        )


def _check_monitor(key: str, monitor: str, chosen: list[str]) -> None:
    known = [f"val/{name}" for name in scores_of(chosen)]
    if monitor not in known:
        raise CaptioningError(
            f"{key}={monitor} is not computed with metrics.val={chosen}; "
            f"choose one of {', '.join(known)}, or add its metric"
        )
