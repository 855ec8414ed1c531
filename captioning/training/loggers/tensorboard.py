"""Every logged value for TensorBoard."""

from collections.abc import Mapping

from lightning.pytorch.utilities import rank_zero_only

from captioning.config.types import UserPath, validated
from captioning.errors import CaptioningError
from captioning.training.loggers.metrics_file import FileLogger

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError as error:
    raise CaptioningError(
        "logger=tensorboard needs another package: pip install 'captioning[tensorboard]'"
    ) from error


class TensorBoard(FileLogger):
    """Event files; after resuming, TensorBoard drops repeated steps from earlier files.

    Lightning's logger would keep them, and writes a file of empty hyperparameters.
    """

    @validated
    def __init__(self, folder: UserPath):
        super().__init__()
        self.path = folder
        self._writer: SummaryWriter | None = None

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._writer = self._writer or SummaryWriter(str(self.path), purge_step=step)
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    @rank_zero_only
    def finalize(self, status: str) -> None:  # after training and again after the test
        if self._writer:
            self._writer.close()
