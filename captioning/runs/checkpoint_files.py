"""Lightning's plugin for atomic, validated checkpoint files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from captioning.runs.checkpoint import read, write


class CheckpointFiles(TorchCheckpointIO):
    """Checkpoints with a digest, of tensors and plain values; `previous.ckpt` is the `last.ckpt` before the present."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write(target, checkpoint, target.with_name("previous.ckpt") if target.name == "last.ckpt" else None)

    def load_checkpoint(
        self, path: str | Path, map_location: Callable[..., Any] | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return read(Path(path))
