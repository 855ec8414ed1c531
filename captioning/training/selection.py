"""Choose the beam width on the validation split, after training."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import lightning as L
from lightning.pytorch.callbacks import ProgressBar

from captioning.decoding import Caption
from captioning.training.callbacks.resume import ResumePoints
from captioning.training.module import CaptioningModule


def select_width(
    trainer: L.Trainer, module: CaptioningModule, data: L.LightningDataModule, widths: Sequence[int]
) -> dict[int, float]:
    """Validate with each width; set the best in the module and in its best checkpoint.

    The best has the best score that the checkpoint was kept by, such as CIDEr; of equals, the first.

    Args:
        trainer: that has trained.
        module: with the weights to test, and a search with a setting `width`.
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
    """Set the beam width of the module and of its checkpoints."""
    search: Callable[..., list[Caption]] = module.search
    module.search = partial(search, width=width)
    module.config["decoding"]["width"] = width


@contextmanager
def _alone(trainer: L.Trainer) -> Iterator[None]:
    """Remove loggers and callbacks for which these validations would be part of the training."""
    callbacks, loggers = trainer.callbacks, trainer.loggers  # type: ignore[attr-defined]
    kept = [callback for callback in callbacks if isinstance(callback, ProgressBar | ResumePoints)]
    trainer.callbacks, trainer.loggers = kept, []  # type: ignore[attr-defined]
    try:
        yield
    finally:
        trainer.callbacks, trainer.loggers = callbacks, loggers  # type: ignore[attr-defined]
