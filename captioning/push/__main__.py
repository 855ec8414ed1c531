"""Pushes a captioner to the Hugging Face Hub: `python -m captioning.push checkpoint=FILE to=hf:USER/NAME`.

Weights and a card, written from the run's own record: data, scores, settings, limits. With `to=FOLDER` both are left
there, to be looked at first.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from omegaconf import DictConfig

from captioning.config.command import command, start
from captioning.config.paths import check_checkpoint, checkpoint_path, given_path
from captioning.config.registry import CONF
from captioning.config.settings import check_table
from captioning.config.types import PathText
from captioning.errors import CaptioningError, quoted
from captioning.push.hub import check_login, upload
from captioning.transfer.named import FILE, is_elsewhere, repository

SETTINGS: Mapping[str, Any] = {
    "checkpoint": PathText | None,
    "to": PathText | None,
    "half": bool,
    "licence": str | None,
}


@command(CONF / "push.yaml")
def main(config: DictConfig) -> None:
    """Writes the folder and, where it goes to the hub, uploads it; prints where it is."""
    check_table(SETTINGS, config)
    for key in ("checkpoint", "to"):
        if config[key] is None:
            raise CaptioningError(f"{key} is not set and has no default: add {key}=VALUE")
    check_checkpoint("checkpoint", config.checkpoint)
    place = repository(config.to)
    if place:
        check_login()
    elif is_elsewhere(config.to):
        allowed = "hf:USER/NAME, hf:USER/NAME@BRANCH or a new folder"
        raise CaptioningError(f"to={quoted(config.to)} is not allowed; it must be {allowed}")
    elif given_path(config.to).exists():
        raise CaptioningError(f"to={quoted(config.to)} is there already: give the name of a new folder")

    from captioning.push.folder import write_folder  # here, because PyTorch takes seconds

    checkpoint = checkpoint_path(config.checkpoint)
    if not place:
        folder = given_path(config.to)
        write_folder(folder, checkpoint, str(folder / FILE), config.half, config.licence)
        print(f"{folder}: {', '.join(path.name for path in sorted(folder.iterdir()))}")
        return
    with TemporaryDirectory() as parent:
        folder = Path(parent, "captioner")
        write_folder(folder, checkpoint, config.to, config.half, config.licence)
        print(upload(folder, place))


if __name__ == "__main__":
    start(main)
