"""Chooses the width of the beam on the validation split, after training."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import lightning as L
from lightning.pytorch.callbacks import ProgressBar

from captioning.decoding import Caption
from captioning.training.callbacks.resume import ResumePoints
from captioning.training.module import CaptioningModule

KEPT = (ProgressBar, ResumePoints)
"""Callbacks of these validations too: what is shown, and what a signal does."""


def select_width(
    trainer: L.Trainer, module: CaptioningModule, data: L.LightningDataModule, widths: Sequence[int]
) -> dict[int, float]:
    """Decodes the validation split with each width, and leaves the best in the module and its best checkpoint.

    Best is what the checkpoint was kept by, such as CIDEr; of equals the first.

    Args:
        trainer: that has trained; no logger hears of it.
        module: with the weights to test, and a search that takes `width`.
        data: of the run.
        widths: to try.

    Returns:
        The score of each width.
    """
    kept = trainer.checkpoint_callback
    monitor, sign = kept.monitor.removeprefix("val/"), 1 if kept.mode == "max" else -1  # type: ignore[union-attr]
    search: Callable[..., list[Caption]] = module.search
    scores, quantiles = {}, {}
    with _alone(trainer):
        for width in widths:
            module.search = partial(search, width=width)
            trainer.validate(module, data, verbose=False)
            scores[width], quantiles[width] = module.latest["val"].corpus[monitor], module.quantiles
    best = max(scores, key=lambda width: sign * scores[width])
    module.search = search
    use_width(module, best)
    if trainer.is_global_zero:
        path = Path(kept.best_model_path)  # type: ignore[union-attr]
        saved = trainer.strategy.checkpoint_io.load_checkpoint(path)
        saved["captioning"]["config"]["decoding"]["width"] = best
        saved["captioning"]["quantiles"] = quantiles[best]
        trainer.strategy.checkpoint_io.save_checkpoint(saved, path)
    trainer.strategy.barrier()
    return scores


def use_width(module: CaptioningModule, width: int) -> None:
    """The module decodes with this width from now on, and its checkpoints say so."""
    search: Callable[..., list[Caption]] = module.search
    module.search = partial(search, width=width)
    module.config["decoding"]["width"] = width


@contextmanager
def _alone(trainer: L.Trainer) -> Iterator[None]:
    """Without loggers and callbacks, which would take these validations for those of the training."""
    callbacks, loggers = trainer.callbacks, trainer.loggers  # type: ignore[attr-defined]
    trainer.callbacks = [callback for callback in callbacks if isinstance(callback, KEPT)]  # type: ignore[attr-defined]
    trainer.loggers = []
    try:
        yield
    finally:
        trainer.callbacks, trainer.loggers = callbacks, loggers  # type: ignore[attr-defined]
