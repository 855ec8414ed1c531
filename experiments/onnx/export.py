"""Write a captioner as a folder of ONNX graphs, for programs without this package.

`python -m experiments.onnx.export checkpoint=FILE`, in the folder of a clone.
"""

import sys
from pathlib import Path

from captioning.config.command import command, start
from captioning.config.registry import CONF, PACKAGE
from captioning.config.settings import SearchSettings, Settings, settings_given
from captioning.config.types import PathText, given_path
from captioning.errors import CaptioningError
from captioning.files import atomic_folder, write_json
from captioning.pretrained.named import PRETRAINED, check_checkpoint, checkpoint_path

HERE = Path(__file__).parent
RUNNER = HERE / "runner.py"
COPIED = ("tokens", "data.pixels", "decoding.ranking", "decoding.filters")
"""Modules of the package that the runner imports."""


class GraphSettings(Settings):
    """Settings of `export.yaml`."""

    checkpoint: PathText
    """RUN_FOLDER/checkpoints/best.ckpt"""
    output: PathText | None
    """folder of graphs; null: next to the checkpoint; for the bundled captioner: the current folder
    """
    overwrite: bool
    """true: replace existing files"""
    modules: list[str]
    """your own modules with parts of the checkpoint, such as [show_tell]"""
    decoding: SearchSettings


@command(HERE / "export.yaml", GraphSettings)
def main(config: GraphSettings) -> None:
    """Write the folder, and print names and sizes."""
    check_checkpoint("checkpoint", config.checkpoint)
    checkpoint = checkpoint_path(config.checkpoint)
    # graphs do not belong among the package's files
    beside = Path(PRETRAINED) if config.checkpoint == PRETRAINED else checkpoint
    output = given_path(config.output or beside.with_suffix(".onnx"))
    if output.exists() and not config.overwrite:
        raise CaptioningError(f"output={output} exists: set another output, or overwrite=true")
    with atomic_folder(output) as draft:
        write_graphs(config, checkpoint, draft)
    for file in sorted(output.iterdir()):
        print(f"{file}: {file.stat().st_size / 1e6:.2f} MB")


def write_graphs(config: GraphSettings, checkpoint: Path, folder: Path) -> None:
    """Write the graphs, what is known about them, and the program that runs them."""
    from captioning.captioner import TrainedCaptioner  # PyTorch takes seconds
    from experiments.onnx.graphs import captioner_graphs
    from experiments.onnx.onnx_files import write_onnx

    decoding, modules = settings_given(config.decoding.plain), config.modules
    captioner = TrainedCaptioner.from_checkpoint(checkpoint, "cpu", decoding, modules)
    graphs, about = captioner_graphs(captioner)
    write_json(folder / "captioner.json", about)
    write_onnx(graphs, folder)
    write_program(folder)


def write_program(folder: Path) -> None:
    """Copy the runner as `run.py` and its modules, which there import each other without the
    package.
    """
    sources = {module: PACKAGE.joinpath(*module.split(".")) for module in COPIED}
    programs = {folder / "run.py": RUNNER}
    programs |= {folder / f"{path.name}.py": path.with_suffix(".py") for path in sources.values()}
    for target, source in programs.items():
        text = source.read_text(encoding="utf-8")
        for module, path in sources.items():
            text = text.replace(f"from captioning.{module} ", f"from {path.name} ")
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.argv[1:1] = ["--config-dir", str(CONF)]  # of the searches
    start(main)
