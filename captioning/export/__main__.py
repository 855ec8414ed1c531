"""Write a checkpoint as a file to share: `captioning export checkpoint=RUN/checkpoints/best.ckpt`.

The file has weights, vocabulary and configuration; it works wherever a checkpoint does, except for
resuming.
"""

from pathlib import Path

from captioning.config.command import command, start
from captioning.config.settings import Settings
from captioning.config.types import GivenPath, PathText
from captioning.errors import CaptioningError
from captioning.pretrained.named import check_checkpoint, checkpoint_path


class ExportSettings(Settings):
    """Settings of `captioning export`."""

    checkpoint: PathText
    """RUN_FOLDER/checkpoints/best.ckpt"""
    output: GivenPath | None
    """file; null: next to the checkpoint"""
    overwrite: bool
    """true: replace an existing file"""
    half: bool
    """true: store weights in half precision, half the size; computation stays in single
    precision
    """


@command("export.yaml", ExportSettings)
def main(config: ExportSettings) -> None:
    """Write the file, and print its name and size."""
    check_checkpoint("checkpoint", config.checkpoint)
    checkpoint = checkpoint_path(config.checkpoint)
    output = config.output or checkpoint.with_suffix(".safetensors")
    if output.exists() and output.samefile(checkpoint):
        raise CaptioningError(f"output={output} is the checkpoint itself: set another output")
    if output.exists() and not config.overwrite:
        raise CaptioningError(f"output={output} exists: set another output, or overwrite=true")
    # imported here, because PyTorch takes seconds
    from captioning.runs.checkpoints.checkpoint import load_checkpoint, write_safetensors

    saved = load_checkpoint(checkpoint)
    parts = saved.config, saved.words, saved.networks
    write_safetensors(output, *parts, config.half, saved.score, saved.quantiles)
    print(f"{output}: {_size(output)}, of the checkpoint's {_size(checkpoint)}")


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.2f} MB"


if __name__ == "__main__":
    start(main)
