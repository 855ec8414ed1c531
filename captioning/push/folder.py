"""What a repository of the hub holds, as a folder: a captioner to share, and its card."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from captioning.config.settings import relocate
from captioning.errors import CaptioningError
from captioning.files import write_text
from captioning.push.card import card
from captioning.report.reading import Record, read_record
from captioning.report.systems import HEADLINE
from captioning.report.units import printed
from captioning.runs.checkpoint import load
from captioning.runs.weights_file import write
from captioning.transfer.named import FILE


def write_folder(folder: Path, checkpoint: Path, called: str, half: bool, licence: str | None) -> None:
    """Makes `folder` with `captioner.safetensors` and `README.md`.

    Args:
        folder: a new one.
        checkpoint: of a run, or an export.
        called: what `checkpoint=` will be for those who use it.
        half: whether its matrices are in half precision.
        licence: of the weights, None where that is not said.

    Raises:
        CaptioningError: the checkpoint or its run's record cannot be read, or the folder cannot be written.
    """
    saved = load(checkpoint)
    config = without_places(saved.config)
    record = _record(checkpoint)
    text = card(config, saved.words, record, called, licence)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise CaptioningError(f"cannot make the folder {folder}: {error.strerror}; set to=FOLDER") from error
    tested = None if record is None else record.scores.get(HEADLINE)
    score = saved.score if tested is None else f"test/{HEADLINE} {printed(HEADLINE, tested)}"
    write(folder / FILE, config, saved.words, saved.networks, half, score, saved.quantiles)
    write_text(folder / "README.md", text)


def without_places(config: dict[str, Any]) -> dict[str, Any]:
    """A run's configuration without the folders of the machine that it ran on: of absolute paths the names are left.

    What lies below `data.root` still does, so that `data.root=FOLDER` moves all of it.
    """
    root = str(config["data"].get("root", ""))
    moved: dict[str, Any] = _names(relocate(config, root, Path(root).name) if Path(root).is_absolute() else config)
    return moved


def _names(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {key: _names(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_names(value) for value in node]
    return Path(node).name if isinstance(node, str) and Path(node).is_absolute() else node


def _record(checkpoint: Path) -> Record | None:
    """The scores of the run folder that the file is the best checkpoint of, or an export of it in its place."""
    scores = checkpoint.parent.parent / "scores.json"
    return read_record(scores) if checkpoint.stem == "best" and scores.is_file() else None
