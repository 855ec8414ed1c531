"""Lightning's plugin for atomic, validated checkpoint files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from captioning.runs.checkpoint import read, write

PREVIOUS = "previous.ckpt"
"""The `last.ckpt` before the present one."""


class CheckpointFiles(TorchCheckpointIO):
    """Write checkpoints atomically with a digest, and read nothing but tensors and plain values.

    The `last.ckpt` before a new one stays as `previous.ckpt`.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write `checkpoint` to `path`."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write(target, checkpoint, target.with_name(PREVIOUS) if target.name == "last.ckpt" else None)

    def load_checkpoint(
        self, path: str | Path, map_location: Callable[..., Any] | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read `path` to the CPU."""
        return read(Path(path))
