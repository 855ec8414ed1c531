"""The progress bar of training."""

from typing import Any

from lightning.pytorch.callbacks import TQDMProgressBar


class Progress(TQDMProgressBar):
    """Lightning's bar, which after resuming within an epoch knows where in the epoch it is.

    Lightning gives the bar its epoch and length when an epoch starts, and an epoch that is resumed does not start
    again: the bar would have neither, and count the batches before as if they had just been trained.
    """

    def on_train_start(self, *args: Any) -> None:
        """Begins at the batch from which training goes on."""
        super().on_train_start(*args)
        loop = self.trainer.fit_loop
        if loop.restarted_mid_epoch:
            self.on_train_epoch_start(self.trainer)
            bar = self.train_progress_bar
            bar.n = bar.initial = loop.epoch_loop.batch_progress.current.completed
