"""Convert a checkpoint: `python -m captioning.export checkpoint=runs/NAME/checkpoints/best.ckpt`.

By default to a file to share, with weights, vocabulary and configuration; it works wherever a
checkpoint does, except for resuming. With format=onnx to a folder of graphs for programs without
this package.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig

from captioning.config.command import command, start
from captioning.config.registry import CONF, PACKAGE
from captioning.config.settings import check_table, refuse, settings_given
from captioning.config.types import PathText
from captioning.download.named import PRETRAINED, check_checkpoint, checkpoint_path
from captioning.files import atomic_folder, write_json

SUFFIXES = {"weights": ".safetensors", "onnx": ".onnx"}
SETTINGS: Mapping[str, Any] = {
    "checkpoint": PathText | None,
    "format": Literal["weights", "onnx"],
    "output": PathText | None,
    "overwrite": bool,
    "half": bool,
    "modules": list[str],
}


@command(CONF / "export.yaml", SETTINGS)
def main(config: DictConfig) -> None:
    """Write the file or folder, and print names and sizes."""
    check_table(SETTINGS, config)
    weights = config.format == "weights"
    refuse(
        {
            "checkpoint is not set: add checkpoint=FILE": config.checkpoint is None,
            "half=true is for format=weights": config.half and not weights,
        }
    )
    check_checkpoint("checkpoint", config.checkpoint)
    checkpoint = checkpoint_path(config.checkpoint)
    in_package = config.checkpoint == PRETRAINED and not weights
    beside = (
        Path(PRETRAINED) if in_package else checkpoint
    )  # graphs do not belong among the package's files
    suffix = SUFFIXES[config.format]
    output = (
        beside.with_suffix(suffix) if config.output is None else Path(config.output).expanduser()
    )
    itself = (
        f"output={output} is the checkpoint itself: set another, or format=onnx for graphs that "
        "run without PyTorch"
    )
    refuse(
        {
            itself: output.exists() and output.samefile(checkpoint),
            f"output={output} exists: set another output, or overwrite=true": output.exists()
            and not config.overwrite,
        }
    )
    if weights:  # imported here, because PyTorch takes seconds
        from captioning.runs.checkpoint import load, write_safetensors

        saved = load(checkpoint)
        write_safetensors(
            output,
            saved.config,
            saved.words,
            saved.networks,
            config.half,
            saved.score,
            saved.quantiles,
        )
        print(f"{output}: {_size(output)}, of the checkpoint's {_size(checkpoint)}")
        return
    with atomic_folder(output) as draft:
        _write_graphs(config, checkpoint, draft)
    for file in sorted(output.iterdir()):
        print(f"{file}: {_size(file)}")


def _write_graphs(config: DictConfig, checkpoint: Path, folder: Path) -> None:
    from captioning.captioner import TrainedCaptioner
    from captioning.export.graphs import captioner_graphs
    from captioning.export.onnx import write_onnx

    decoding, modules = settings_given(config.decoding), list(config.modules)
    graphs, about = captioner_graphs(
        TrainedCaptioner.from_checkpoint(checkpoint, "cpu", decoding, modules)
    )
    write_json(folder / "captioner.json", about)
    write_onnx(graphs, folder)
    shutil.copyfile(PACKAGE / "export" / "runner.py", folder / "run.py")


def _size(path: Path) -> str:
    size = path.stat().st_size
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


if __name__ == "__main__":
    start(main)
