"""Captions photographs: `python -m captioning.predict checkpoint=runs/NAME/checkpoints/best.ckpt images=FOLDER`.

One JSON line per photograph on standard output, in order; on standard error what could not be read.
"""

import glob
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge
from omegaconf import DictConfig, ListConfig, OmegaConf
from torch import Tensor

from captioning.borders.bounds import BatchSize, PathText
from captioning.config.command import command, start, while_read
from captioning.config.registry import CONF
from captioning.config.searches import settings_given
from captioning.config.signatures import check_table
from captioning.errors import CaptioningError, quoted
from captioning.report.panels import save_panel
from captioning.runs.kept_attention import FILE, KeptCaption, write
from captioning.trained import Prediction, TrainedCaptioner

SETTINGS: Mapping[str, Any] = {
    "checkpoint": PathText | None,
    "batch_size": BatchSize,
    "device": str,
    "attention": bool,
    "panels": PathText,
    "keep": Annotated[int, Ge(0)],
    "maps": str,
    "modules": list[str],
}
SUFFIXES = (".avif", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
"""What a file in a folder is called if it is meant; a file that is named itself may be called anything."""


@command(CONF / "predict.yaml")
def main(config: DictConfig) -> None:
    """Prints captions as `config` says; exits with 1 if anything could not be captioned."""
    _check(config)
    # File names need not be text; what is not is escaped as JSON escapes it.
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    problems = Problems()
    paths = list(find(config.images, problems))
    if paths:
        checkpoint = None if config.checkpoint is None else Path(str(config.checkpoint)).expanduser()
        captioner = TrainedCaptioner.from_checkpoint(
            checkpoint, str(config.device), settings_given(config.decoding), list(config.modules)
        )
        panels = (
            Panels(Path(config.panels).expanduser(), captioner, config.maps, config.keep) if config.attention else None
        )
        with while_read():
            for line in caption_files(captioner, paths, config.batch_size, panels, problems):
                print(json.dumps(line, ensure_ascii=False), flush=True)
    if problems.count:
        sys.exit(1)


class Problems:
    """What could not be captioned: said at once, counted for the end."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, message: object) -> None:
        """Prints one line."""
        self.count += 1
        print(f"error: {message}", file=sys.stderr, flush=True)


class Panels:
    """A folder with one picture per photograph, called as the photograph is.

    Args:
        folder: made where it is not there.
        captioner: whose attention they show.
        maps: `mean`, `all`, or the name of a layer's and head's.
        keep: of how many captions `attention.npz` gets all maps.

    Raises:
        CaptioningError: the folder cannot be made, or what a network sees has no place on the photograph.
    """

    def __init__(self, folder: Path, captioner: TrainedCaptioner, maps: str = "mean", keep: int = 0) -> None:
        self.folder, self.captioner, self.maps, self._keep = folder, captioner, maps, keep
        self._kept: list[KeptCaption] = []
        self._taken: set[str] = set()
        if not all(network.backbone.located for network in captioner.networks):
            raise CaptioningError(
                "what this captioner attends to has no place on the photograph: leave attention=false"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CaptioningError(f"cannot make the folder {folder}: {error.strerror}; set panels=FOLDER") from error

    def save(self, path: Path, photograph: tuple[Tensor, ...], prediction: Prediction) -> Path:
        """Draws the photograph of the file `path`; of two files of one name the second gets a number.

        Raises:
            CaptioningError: the model has no attention, or none of that name.
        """
        shown = self._shown(photograph, prediction)
        names = (f"{path.stem}{end}" for end in itertools.chain([""], (f"-{n}" for n in itertools.count(2))))
        name = next(name for name in names if name.lower() not in self._taken)  # some file systems ignore the case
        self._taken.add(name.lower())
        panel = self.folder / f"{name}.png"
        save_panel(panel, photograph[0] / 255, prediction.words, shown, title=prediction.caption)
        if len(self._kept) < self._keep:
            inputs = [pixels[None] for pixels in photograph]
            image_id = os.fsencode(path).decode(errors="backslashreplace")
            self._kept += self.captioner.kept(image_id, prediction.decoded, inputs, [True] * len(inputs))
        return panel

    def end(self) -> None:
        """Writes `attention.npz`.

        Raises:
            CaptioningError: it cannot be written.
        """
        if self._kept:
            write(self.folder / FILE, self._kept)

    def _shown(self, photograph: tuple[Tensor, ...], prediction: Prediction) -> Tensor | dict[str, Tensor]:
        if prediction.attention is None:
            raise CaptioningError("this model has no attention to draw: leave attention=false")
        if self.maps == "mean" or not prediction.words:
            return prediction.attention
        found = self.captioner.attention_maps(photograph, prediction.words)
        if self.maps != "all" and self.maps not in found:
            raise CaptioningError(f"maps={self.maps} is not allowed; it must be one of mean, all, {', '.join(found)}")
        return found if self.maps == "all" else found[self.maps]


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
                f"no photographs at images={quoted(entry)}: name a file, a pattern or a folder with files of {kinds}"
            )
        yield from found


def _below(folder: Path, problems: Problems) -> Iterator[Path]:
    """The images in a folder and all folders in it, without hidden ones."""

    def skip(error: OSError) -> None:
        problems.add(f"cannot look into the folder {quoted(error.filename)}: {error.strerror}")

    for place, folders, files in os.walk(folder, onerror=skip):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for file in (Path(place, name) for name in files if not name.startswith(".")):
            if file.suffix.lower() in SUFFIXES and os.path.isfile(file):  # noqa: PTH113
                yield file


def caption_files(
    captioner: TrainedCaptioner, paths: Iterable[Path], batch_size: int, panels: Panels | None, problems: Problems
) -> Iterator[dict[str, Any]]:
    """A line for each file that can be read, in order."""
    read = _readable(captioner, paths, problems)
    while batch := list(itertools.islice(read, batch_size)):
        predictions = captioner.predict([pixels for _, pixels in batch])
        for (path, pixels), prediction in zip(batch, predictions, strict=True):
            line = {"image": str(path), "caption": prediction.caption, "score": round(prediction.score, 4)}
            if prediction.alternatives:
                others = prediction.alternatives
                line["alternatives"] = [{"caption": o.caption, "score": round(o.score, 4)} for o in others]
            if panels:
                line["panel"] = str(panels.save(path, pixels, prediction))
            yield line
    if panels:
        panels.end()


def _readable(
    captioner: TrainedCaptioner, paths: Iterable[Path], problems: Problems
) -> Iterator[tuple[Path, tuple[Tensor, ...]]]:
    for path in paths:
        try:
            yield path, captioner.read(path)
        except CaptioningError as error:
            problems.add(error)


def _check(config: DictConfig) -> None:
    for key in ("checkpoint", "images") if config.decoding.get("ensemble") is None else ("images",):
        if OmegaConf.is_missing(config, key) or config[key] in (None, "", []):
            raise CaptioningError(f"{key} is not set and has no default: add {key}=VALUE")
    check_table(SETTINGS, config)


if __name__ == "__main__":
    start(main)
