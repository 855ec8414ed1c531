"""Choose the weights and the width of the beam on the validation split, after training."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import ProgressBar

from captioning.decoding import Caption
from captioning.errors import CaptioningError
from captioning.machine import is_first
from captioning.runs.checkpoint import read
from captioning.training.callbacks.resume import ResumePoints
from captioning.training.module import CaptioningModule

log = logging.getLogger(__name__)


def select(
    trainer: L.Trainer,
    module: CaptioningModule,
    data: L.LightningDataModule,
    widths: Sequence[int] | None,
    test: bool,
    earlier: dict[str, Any] | None,
) -> dict[str, Any]:
    """Load the best weights, and choose the best of several beam widths.

    Args:
        trainer: after training.
        module: of the run.
        data: of the run.
        widths: to try, if any.
        test: whether the weights are to be tested.
        earlier: the result of a trial that was trained before and is only tested now; it is returned.

    Returns:
        `best`, the validation score of the weights, or None without validation; `widths`, the score of each.
    """
    score = trainer.checkpoint_callback.best_model_score  # type: ignore[union-attr]
    if widths or test:
        load_best(module, trainer)
    if earlier is not None:
        if widths:
            by_score = {score: int(width) for width, score in reversed(earlier["widths"].items())}  # first of equals
            use_width(module, by_score[earlier["best"]])
        return earlier
    if not widths:
        return {"best": None if score is None else float(score)}
    if is_first():
        log.info("choosing the beam width on validation: %s", ", ".join(map(str, widths)))
    scores = select_width(trainer, module, data, widths)
    width = module.config["decoding"]["width"]
    if is_first():
        monitor = trainer.checkpoint_callback.monitor  # type: ignore[union-attr]
        tried = ", ".join(f"{each}: {value:.1f}" for each, value in scores.items())
        log.info("beam width %d has the best %s (%s)", width, monitor, tried)
    return {"best": scores[width], "widths": scores}


def load_best(module: CaptioningModule, trainer: L.Trainer) -> None:
    """Load the weights of the best checkpoint."""
    # trainer.test(ckpt_path="best") would also restore callbacks: the stopwatch to the time of that checkpoint, and
    # averaged weights to those that training continues from
    path = trainer.strategy.broadcast(trainer.checkpoint_callback.best_model_path)  # type: ignore[union-attr]
    if not path:
        raise CaptioningError("no validation took place, so there is no best checkpoint to test: set test=false")
    module.load_state_dict(read(Path(path))["state_dict"])


def select_width(
    trainer: L.Trainer, module: CaptioningModule, data: L.LightningDataModule, widths: Sequence[int]
) -> dict[int, float]:
    """Validate with each width; set the best in the module and in its best checkpoint.

    The best has the best score that the checkpoint was kept by, such as CIDEr; of equals, the first. Returns the score
    of each width.
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
