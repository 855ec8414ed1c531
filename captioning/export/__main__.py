"""Makes a file to share of a checkpoint: `python -m captioning.export checkpoint=runs/NAME/checkpoints/best.ckpt`.

It has weights, vocabulary and configuration, and stands wherever a checkpoint does, but for resuming.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig

from captioning.borders.bounds import PathText
from captioning.config.command import command, start
from captioning.config.composed import check_table
from captioning.config.paths import check_checkpoint, checkpoint_path
from captioning.config.registry import CONF
from captioning.errors import CaptioningError

SUFFIX = ".safetensors"
SETTINGS: Mapping[str, Any] = {
    "checkpoint": PathText | None,
    "format": Literal["weights"],
    "output": PathText | None,
    "overwrite": bool,
}


@command(CONF / "export.yaml")
def main(config: DictConfig) -> None:
    """Writes the file and prints its name and size beside the checkpoint's."""
    check_table(SETTINGS, config)
    if config.checkpoint is None:
        raise CaptioningError("checkpoint is not set and has no default: add checkpoint=FILE")
    check_checkpoint("checkpoint", config.checkpoint)
    checkpoint = checkpoint_path(config.checkpoint)
    output = checkpoint.with_suffix(SUFFIX) if config.output is None else Path(config.output).expanduser()
    _check_output(checkpoint, output, config.overwrite)
    from captioning.export.weights import export_weights  # here, because PyTorch takes seconds

    export_weights(checkpoint, output)
    print(f"{output}: {_megabytes(output)}, of the checkpoint's {_megabytes(checkpoint)}")


def _check_output(checkpoint: Path, output: Path, overwrite: bool) -> None:
    """Refuses to write over anything that the user has not said."""
    if not output.exists():
        return
    if not output.is_file():
        raise CaptioningError(f"output={output} is a folder, or no file: give the name of one")
    if output.samefile(checkpoint):
        raise CaptioningError(f"output={output} is the checkpoint itself: set output to another file")
    if not overwrite:
        raise CaptioningError(f"output={output} is there already: set output to another file, or overwrite=true")


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


if __name__ == "__main__":
    start(main)
