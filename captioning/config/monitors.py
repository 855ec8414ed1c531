"""The column of `metrics.csv` that chooses the checkpoint and ends training early."""

from collections.abc import Collection, Iterator

from omegaconf import DictConfig, OmegaConf

from captioning.metrics.metric import ATTENTION, BLEU_ALONE, HALLUCINATION, MAIN, WORDING
from captioning.metrics.table import SCORES, scores_of

LOSS = "val/nll"
OF_TRAINING = ("train/", "lr-", "seconds")
"""Beginnings of columns that every run has; their names depend on objective and optimizer."""


def monitor_rules(config: DictConfig, attends: bool) -> dict[str, bool]:
    """Return messages, and True for each that is violated; `attends`: the model has attention."""
    metrics = list(config.metrics.val)
    scores = [f"val/{name}" for name in scores_of(metrics, config.data.get("language", "en"))]
    names = ", ".join([*scores, LOSS])
    columns = [*scores, LOSS, *(f"val/{name}" for name in _statistics(config, attends))]
    rules = {}
    for name, callback in config.callbacks.items():
        monitor = callback and callback.get("monitor")
        if not monitor:
            continue
        setting = f"callbacks.{name}.monitor={monitor}"
        unknown = (
            f"{setting} is not computed with metrics.val={metrics}; choose one of {names}, or add "
            "its metric"
        )
        rules[unknown] = not monitor.startswith(OF_TRAINING) and monitor not in columns
        best, mode = _best(monitor), callback.get("mode")
        wrong = (
            f"{setting} is best where it is {best}imal, and callbacks.{name}.mode={mode}: set it "
            f"to {best}"
        )
        rules[wrong] = None not in (best, mode) and mode != best
    return rules


def is_score(monitor: str) -> bool:
    """Return True for a score of generated captions, by which beam widths can be compared."""
    name = monitor.removeprefix("val/")
    statistics = name in SCORES and not SCORES[name].metric
    return monitor.startswith("val/") and monitor != LOSS and not statistics


def choose_loss(config: DictConfig, instead_of: Collection[str] = ()) -> bool:
    """Monitor the loss where a callback monitors one of these; return True if one did.

    Without metrics in validation, which then decodes no captions, these are all scores.
    """
    if not instead_of and OmegaConf.select(config, "metrics.val") == []:
        instead_of = [f"val/{name}" for name, score in SCORES.items() if score.group == MAIN]
    found = [
        each for each in config.callbacks.values() if each and each.get("monitor") in instead_of
    ]
    for callback in found:
        callback.monitor, callback.mode = LOSS, "min"
    return bool(found)


def _best(monitor: str) -> str | None:
    name = monitor.removeprefix("val/")
    return "min" if monitor.endswith("/nll") else SCORES[name].best if name in SCORES else None


def _statistics(config: DictConfig, attends: bool) -> Iterator[str]:
    """Columns of validated captions beside their main scores."""
    if not config.metrics.val:
        return
    callbacks = config.callbacks
    kept = {
        WORDING: bool(callbacks.get("wording")),
        ATTENTION: attends and bool(callbacks.get("attention_statistics")),
    }
    for name, score in SCORES.items():
        if score.group == BLEU_ALONE:
            known = "BLEU" in config.metrics.val
        elif score.group == HALLUCINATION:
            known = score.metric in (*config.metrics.val, *config.data.metrics)
        else:
            known = kept.get(score.group, False) and not name.startswith(
                "pointing"
            )  # which the test alone has
        if known:
            yield name
