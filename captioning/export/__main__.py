"""Convert a checkpoint: `captioning export checkpoint=runs/NAME/checkpoints/best.ckpt`.

By default to a file to share, with weights, vocabulary and configuration; it works wherever a
checkpoint does, except for resuming. With format=onnx to a folder of graphs for programs without
this package.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from captioning.config.command import command, start
from captioning.config.registry import CONF, PACKAGE
from captioning.config.settings import SearchSettings, Settings, settings_given
from captioning.config.types import PathText, given_path
from captioning.errors import CaptioningError
from captioning.files import atomic_folder, write_json
from captioning.pretrained.named import PRETRAINED, check_checkpoint, checkpoint_path

COPIED = ("tokens", "data.pixels", "decoding.ranking", "decoding.filters")
SUFFIXES = {"weights": ".safetensors", "onnx": ".onnx"}


class ExportSettings(Settings):
    """Settings of `captioning export`."""

    checkpoint: PathText
    """RUN_FOLDER/checkpoints/best.ckpt"""
    format: Literal["weights", "onnx"]
    """weights, vocabulary and configuration, as safetensors; onnx: graphs"""
    output: PathText | None
    """file, or folder of graphs; null: next to the checkpoint; for the bundled captioner: the
    current folder
    """
    overwrite: bool
    """true: replace existing files"""
    half: bool
    """true: store weights in half precision, half the size; computation stays in single
    precision
    """
    modules: list[str]
    """your own modules with parts of the checkpoint, such as [show_tell]"""
    decoding: SearchSettings

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.half and self.format != "weights":
            raise ValueError("half=true is for format=weights")
        return self


@command(CONF / "export.yaml", ExportSettings)
def main(config: ExportSettings) -> None:
    """Write the file or folder, and print names and sizes."""
    weights = config.format == "weights"
    check_checkpoint("checkpoint", config.checkpoint)
    checkpoint = checkpoint_path(config.checkpoint)
    # graphs do not belong among the package's files
    in_package = config.checkpoint == PRETRAINED and not weights
    beside = Path(PRETRAINED) if in_package else checkpoint
    output = given_path(config.output or beside.with_suffix(SUFFIXES[config.format]))
    if output.exists() and output.samefile(checkpoint):
        raise CaptioningError(
            f"output={output} is the checkpoint itself: set another, or format=onnx for graphs "
            "that run without PyTorch"
        )
    if output.exists() and not config.overwrite:
        raise CaptioningError(f"output={output} exists: set another output, or overwrite=true")
    if weights:  # imported here, because PyTorch takes seconds
        from captioning.runs.checkpoints.checkpoint import load_checkpoint, write_safetensors

        saved = load_checkpoint(checkpoint)
        parts = saved.config, saved.words, saved.networks
        write_safetensors(output, *parts, config.half, saved.score, saved.quantiles)
        print(f"{output}: {_size(output)}, of the checkpoint's {_size(checkpoint)}")
        return
    with atomic_folder(output) as draft:
        _write_graphs(config, checkpoint, draft)
    for file in sorted(output.iterdir()):
        print(f"{file}: {_size(file)}")


def _write_graphs(config: ExportSettings, checkpoint: Path, folder: Path) -> None:
    from captioning.captioner import TrainedCaptioner
    from captioning.export.graphs import captioner_graphs
    from captioning.export.onnx import write_onnx

    decoding, modules = settings_given(config.decoding.plain), config.modules
    captioner = TrainedCaptioner.from_checkpoint(checkpoint, "cpu", decoding, modules)
    graphs, about = captioner_graphs(captioner)
    write_json(folder / "captioner.json", about)
    write_onnx(graphs, folder)
    programs = {"export.runner": "run", **{module: module.split(".")[-1] for module in COPIED}}
    for module, name in programs.items():  # which find each other there, without this package
        text = PACKAGE.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
        for other in COPIED:
            text = text.replace(f"from captioning.{other} ", f"from {programs[other]} ")
        (folder / f"{name}.py").write_text(text, encoding="utf-8")


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.2f} MB"


if __name__ == "__main__":
    start(main)
