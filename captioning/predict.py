"""Captions photographs: `python -m captioning.predict PHOTOGRAPH ...`, or those of `images=FOLDER`.

The captioner is the one in the box, or that of `checkpoint=FILE`. One line per photograph on standard output, in order:
to be read on a terminal, else JSON; on standard error what could not be read.
"""

import glob
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge
from omegaconf import DictConfig, ListConfig, OmegaConf

from captioning.config.command import command, start, while_read
from captioning.config.paths import PRETRAINED, check_checkpoints
from captioning.config.registry import CONF
from captioning.config.settings import check_table
from captioning.config.types import BatchSize, PathText
from captioning.errors import CaptioningError, one_line, quoted
from captioning.files import SUFFIXES, photographs_below

SETTINGS: Mapping[str, Any] = {
    "checkpoint": PathText | None,
    "batch_size": BatchSize,
    "device": str,
    "bfloat16": bool,
    "attention": bool,
    "panels": PathText,
    "keep": Annotated[int, Ge(0)],
    "maps": str,
    "modules": list[str],
}


@command(CONF / "predict.yaml", words="images")
def main(config: DictConfig) -> None:
    """Prints captions as `config` says; exits with 1 if anything could not be captioned."""
    _check(config)
    # File names need not be text; what is not is escaped as JSON escapes it.
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    problems = Problems()
    paths = list(find(config.images, problems))
    if paths:
        from captioning.work.predict import caption_files  # here, because PyTorch takes seconds

        with while_read():
            for line in caption_files(config, paths, problems.add):
                print(shown(line), flush=True)
    if problems.count:
        sys.exit(1)


def shown(line: Mapping[str, Any]) -> str:
    """What is said of a photograph: JSON for programs, lines for whoever sits at a terminal."""
    if not sys.stdout.isatty():
        return json.dumps(line, ensure_ascii=False)
    sure = "" if line["confidence"] is None else f" (confidence {line['confidence']:.2f})"
    others = (each["caption"] for each in line.get("alternatives", ()))
    captions = [f"{line['image']}: {line['caption']}{sure}", *others]
    return "\n    ".join(map(one_line, [*captions, *([line["panel"]] if "panel" in line else [])]))


class Problems:
    """What could not be captioned: said at once, counted for the end."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, message: object) -> None:
        """Prints one line."""
        self.count += 1
        print(f"error: {one_line(str(message))}", file=sys.stderr, flush=True)


def find(images: Any, problems: Problems) -> Iterator[Path]:
    """The files that `images` names: of one entry sorted, entries in their own order."""
    for entry in images if isinstance(images, ListConfig) else [images]:
        # Not the methods of `Path`: they raise for names that no file or home can have, and * also finds hidden files.
        name = os.path.expanduser(str(entry))  # noqa: PTH111
        matches = map(Path, [name] if os.path.exists(name) else glob.glob(name, recursive=True))  # noqa: PTH110, PTH207
        found = sorted({file for match in matches for file in (_below(match, problems) if match.is_dir() else [match])})
        if not found:
            kinds = ", ".join(SUFFIXES)
            problems.add(
                f"no photographs at images={quoted(entry)}: name a file, a pattern or a folder with files of {kinds}; "
                "settings are KEY=VALUE"
            )
        yield from found


def _below(folder: Path, problems: Problems) -> Iterator[Path]:
    """The images in a folder and all folders in it, without hidden ones."""

    def skip(error: OSError) -> None:
        problems.add(f"cannot look into the folder {quoted(error.filename)}: {error.strerror}")

    return photographs_below(folder, skip)


def _check(config: DictConfig) -> None:
    if OmegaConf.is_missing(config, "images") or config.images in (None, "", []):
        raise CaptioningError("no photographs are given: add their names, or images=FOLDER")
    check_table(SETTINGS, config)
    if config.checkpoint is None and config.decoding.get("ensemble") is None:
        config.checkpoint = PRETRAINED
    check_checkpoints(config)


if __name__ == "__main__":
    start(main)
