"""Every logged value for TensorBoard."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from captioning.config.types import validated
from captioning.errors import CaptioningError

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError as error:
    raise CaptioningError("logger=tensorboard needs a package more: pip install 'captioning[tensorboard]'") from error


class TensorBoard(Logger):
    """Event files; where a run is resumed, TensorBoard drops what an earlier file has of the steps that come again.

    Lightning's own logger would keep it, and leaves a file of no hyperparameters.

    Args:
        folder: of the files, made with the first value.
    """

    @validated
    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.folder = Path(folder)
        self._writer: SummaryWriter | None = None

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """`config.yaml` has them."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        if self._writer is None:
            self._writer = SummaryWriter(str(self.folder), purge_step=step)
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Writes what waits; Lightning calls this after training and once more after the test."""
        if self._writer is not None:
            self._writer.close()
