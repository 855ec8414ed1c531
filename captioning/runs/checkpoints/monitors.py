"""The column of `metrics.csv` that chooses the checkpoint and ends training early."""

import logging
import math
from collections.abc import Collection, Iterator, Sequence

from omegaconf import DictConfig, OmegaConf

from captioning.config.schemas.run import RunSettings
from captioning.data.example import Example
from captioning.errors import CaptioningError
from captioning.machine import is_rank_zero
from captioning.metrics.metric import ATTENTION, BLEU_ALONE, MAIN, WORDING
from captioning.metrics.statistics import is_constant
from captioning.metrics.table import SCORES, score_called, scores_of

LOSS = "val/nll"
OF_TRAINING = ("train/", "lr-", "seconds")
"""Beginnings of columns that every run has; their names depend on objective and optimizer."""

log = logging.getLogger(__name__)


def check_monitors(settings: RunSettings) -> None:
    """Refuse monitors that are not computed, or that their callback would misread."""
    metrics = settings.metrics.val
    computed = [*metrics, *settings.data.metrics] if metrics else []
    scores = [f"val/{name}" for name in scores_of(computed, settings.data.caption_language.code)]
    columns = [*scores, LOSS]
    if computed:
        columns += [f"val/{name}" for name in _statistics(computed)]
    for name, monitor in settings.callbacks.monitors.items():
        setting = f"callbacks.{name}.monitor={monitor}"
        if not monitor.startswith(OF_TRAINING) and monitor not in columns:
            raise CaptioningError(
                f"{setting} is not computed with metrics.val={metrics}; choose one of "
                f"{', '.join([*scores, LOSS])}, or add its metric"
            )
        score = score_called(monitor.removeprefix("val/"))
        best = "min" if monitor.endswith("/nll") else score.best
        mode = settings.callbacks.parts[name].get("mode")
        if None not in (best, mode) and mode != best:
            raise CaptioningError(
                f"{setting} is best where it is {best}imal, and callbacks.{name}.mode={mode}: set "
                f"it to {best}"
            )
    monitor, widths = settings.callbacks.checkpoint.monitor, settings.decoding.beam_widths
    is_score = monitor in scores or score_called(monitor.removeprefix("val/")).metric
    if widths and not is_score:  # no search changes it
        raise CaptioningError(
            f"decoding.beam_widths={widths} compares the scores of "
            f"captions, and callbacks.checkpoint.monitor={monitor} is none: set "
            "decoding.beam_widths=null, or monitor a score"
        )


def choose_loss(config: DictConfig, instead_of: Collection[str] = ()) -> bool:
    """Monitor the loss where a callback monitors one of these; return True if one did.

    Without metrics in validation, which then decodes no captions, these are all scores.
    """
    if not instead_of and OmegaConf.select(config, "metrics.val") == []:
        instead_of = [f"val/{name}" for name, score in SCORES.items() if score.group == MAIN]
    chosen = False
    for callback in config.callbacks.values():
        if callback and callback.get("monitor") in instead_of:
            callback.monitor, callback.mode, chosen = LOSS, "min", True
    return chosen


def choose_loss_if_constant(config: DictConfig, examples: Sequence[Example]) -> bool:
    """Choose the checkpoint by the loss where CIDEr would choose none; return True if it did.

    CIDEr is 0 for any captions of these validated images.
    """
    size, limit = config.data.eval_batch_size, config.trainer.limit_val_batches
    if limit is not None:
        batches = limit if isinstance(limit, int) else int(limit * math.ceil(len(examples) / size))
        examples = examples[: batches * size]
    captions = [[reference.words for reference in example.references] for example in examples]
    if not is_constant(captions) or not choose_loss(config, ["val/CIDEr"]):
        return False
    images = f"{len(examples):,} validation image{'s' if len(examples) > 1 else ''}"
    reason = f"CIDEr is 0 for any captions of {images} with the same references"
    if config.decoding.get("beam_widths"):
        config.decoding.beam_widths = None
        reason += ", so decoding.beam_widths has nothing to compare"
    if is_rank_zero():
        log.warning("%s: the best checkpoint is chosen by the loss, %s", reason, LOSS)
    return True


def _statistics(metrics: Sequence[str]) -> Iterator[str]:
    """Columns of validated captions beside the main scores of `metrics`."""
    for name, score in SCORES.items():
        if score.group in (WORDING, ATTENTION) and not name.startswith("pointing"):
            yield name  # pointing is of the test alone
        if score.group == BLEU_ALONE and score.metric in metrics:
            yield name
