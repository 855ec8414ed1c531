"""Caption images: `captioning predict PHOTOGRAPH ...` or `captioning predict images=FOLDER`.

The captioner is the bundled one, or that of `checkpoint=FILE`. It prints a line per photograph, for
people on a terminal, else JSON; photographs that cannot be read are listed on standard error.
"""

import glob
import itertools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import model_validator

from captioning.config.command import command, start, while_read
from captioning.config.settings import CaptionerSettings
from captioning.config.types import BatchSize, GivenPath, PathText, given_path
from captioning.data.readers.ids import file_name
from captioning.errors import CaptioningError, one_line, quoted
from captioning.files import JOIN, SUFFIXES, find_images, to_json
from captioning.machine import without_collection
from captioning.pretrained.named import PRETRAINED

if TYPE_CHECKING:  # PyTorch takes seconds, and is imported once photographs are found
    from torch import Tensor

    from captioning.captioner import Prediction, TrainedCaptioner
    from captioning.runs.evaluation.attention_file import AttentionRecord


class PredictSettings(CaptionerSettings):
    """Settings of `captioning predict`."""

    checkpoint: PathText | None
    """RUN_FOLDER/checkpoints/best.ckpt; null: pretrained, the bundled captioner"""
    images: Any
    """a file, a folder with its subfolders, a pattern such as 'trip/*.jpg', or a list; `images=`
    may be omitted
    """
    batch_size: BatchSize
    """images per batch"""
    attention: bool
    """true: also draw attention maps, a PNG and a PDF per image"""
    panels: GivenPath
    """the folder of the panels, and of attention.npz"""
    maps: str
    """all: a row per layer and head; or a single one, 'inter 1 5'"""

    @model_validator(mode="after")
    def _has_images(self) -> Self:
        if self.images in (None, "", []):
            raise ValueError("no photographs are given: add their names, or images=FOLDER")
        return self


@command("predict.yaml", PredictSettings, words="images")
def main(config: PredictSettings) -> None:
    """Print captions; exit with 1 if anything could not be captioned."""
    if config.checkpoint is None and config.decoding.ensemble is None:
        config.checkpoint = PRETRAINED
    config.check_checkpoints()
    problems = ErrorCounter()
    examples = list(find_inputs(config.images, problems))
    if examples:
        with while_read():
            for line in caption_files(config, examples, problems):
                print(printed(line), flush=True)
    if problems.count:
        sys.exit(1)


class ErrorCounter:
    """Print and count what could not be captioned."""

    count = 0

    def add(self, message: object) -> None:
        """Print a line."""
        self.count += 1
        print(f"error: {one_line(str(message))}", file=sys.stderr, flush=True)


def find_inputs(images: Any, problems: ErrorCounter) -> Iterator[tuple[Path, ...]]:
    """The files that `images` names: sorted within an entry, entries in their own order.

    An entry `A+B`, unless it is a file, has examples of two images: the n-th of A and of B.
    """

    def complain(error: OSError) -> None:
        problems.add(f"cannot read the folder {quoted(error.filename)}: {error.strerror}")

    for entry in images if isinstance(images, list) else [images]:
        name = str(entry)
        columns = []
        for part in [name] if _matches(name) else name.split(JOIN):
            files: set[Path] = set()
            for match in map(Path, _matches(part)):
                files.update(find_images(match, complain) if match.is_dir() else [match])
            if not files:
                kinds = ", ".join(SUFFIXES)
                problems.add(
                    f"no photographs at images={quoted(part)}: name a file, a pattern or a folder "
                    f"with files of {kinds}; settings are KEY=VALUE"
                )
            columns.append(sorted(files))
        counts = [*map(len, columns)]
        if len({*counts}) == 1:
            yield from zip(*columns, strict=True)
        elif all(counts):
            numbers = " and ".join(map(str, counts))
            problems.add(f"images={quoted(entry)} names {numbers} files, which make no examples")


def _matches(name: str) -> list[str]:
    """The file or folder of a name, or those that match it as a pattern."""
    # Not the methods of `Path`: they raise for names that no file can have, and * also finds hidden
    # files.
    name = name and str(given_path(name))
    return [name] if os.path.exists(name) else glob.glob(name, recursive=True)  # noqa: PTH110, PTH207


def caption_files(
    config: PredictSettings, examples: Sequence[tuple[Path, ...]], problems: ErrorCounter
) -> Iterator[dict[str, Any]]:
    """The line of each example that can be read, in order."""
    with without_collection():
        from captioning.captioner import TrainedCaptioner

        captioner = TrainedCaptioner.from_checkpoint(
            config.checkpoint, config.device, config.search, config.modules, config.bfloat16
        )
    panels = None
    if config.attention:
        panels = Panels(config.panels, captioner, config.maps, config.save_attention)

    def readable() -> "Iterator[tuple[tuple[Path, ...], tuple[Tensor, ...]]]":
        for paths in examples:
            try:
                yield paths, captioner.preprocess(paths)
            except (CaptioningError, OSError) as error:
                problems.add(error)

    images = readable()
    while batch := list(itertools.islice(images, config.batch_size)):
        predictions = captioner.caption_tensors([pixels for _, pixels in batch])
        for (paths, pixels), prediction in zip(batch, predictions, strict=True):
            line = {"image": JOIN.join(map(str, paths)), **_caption(prediction)}
            if prediction.alternatives:
                line["alternatives"] = [_caption(other) for other in prediction.alternatives]
            if panels:
                line["panel"] = str(panels.save(paths, pixels, prediction))
            yield line
    if panels:
        panels.end()


def _caption(prediction: "Prediction") -> dict[str, Any]:
    score = round(prediction.score, 4)
    return {"caption": prediction.caption, "score": score, "confidence": prediction.confidence}


def printed(line: Mapping[str, Any]) -> str:
    """A line as JSON, or readable on a terminal."""
    if not sys.stdout.isatty():
        return to_json(line, ensure_ascii=False)
    confidence = "" if line["confidence"] is None else f" (confidence {line['confidence']:.2f})"
    others = (other["caption"] for other in line.get("alternatives", ()))
    rows = [f"{line['image']}: {line['caption']}{confidence}", *others]
    rows += [line["panel"]] if "panel" in line else []
    return "\n    ".join(map(one_line, rows))


class Panels:
    """Attention panels in a folder, and `attention.npz` with the first `keep` maps.

    `maps` is `mean`, `all`, or the name of a layer and head. H rows and W columns of pixels, T
    words.
    """

    def __init__(self, folder: Path, captioner: "TrainedCaptioner", maps: str, keep: int):
        self.folder, self.captioner, self.maps, self._keep = folder, captioner, maps, keep
        self._kept: list[AttentionRecord] = []
        self._taken: set[str] = set()
        if not all(network.backbone.located for network in captioner.networks):
            raise CaptioningError(
                "the inputs of this captioner have no place on a photograph: leave attention=false"
            )
        folder.mkdir(parents=True, exist_ok=True)

    def save(
        self, paths: tuple[Path, ...], image: "tuple[Tensor, ...]", prediction: "Prediction"
    ) -> Path:
        """Draw a panel as PNG and PDF, named after the first image, numbered if taken."""
        from captioning.report.panels import LONGEST, save_panel

        panel = self.folder / f"{file_name(paths[0].stem, self._taken)}.png"
        attention = self._attention(image, prediction)
        whole, frame = self.captioner.first.backbone.picture(paths, LONGEST)
        save_panel(panel, whole, prediction.words, attention, title=prediction.caption, frame=frame)
        if len(self._kept) < self._keep:
            inputs = [pixels[None] for pixels in image]
            image_id = os.fsencode(JOIN.join(map(str, paths))).decode(errors="backslashreplace")
            self._kept += self.captioner.attention_record(image_id, prediction.decoded, inputs)
        return panel

    def end(self) -> None:
        """Write `attention.npz`."""
        from captioning.runs.evaluation.attention_file import FILE, write

        if self._kept:
            write(self.folder / FILE, self._kept)

    def _attention(
        self, image: "tuple[Tensor, ...]", prediction: "Prediction"
    ) -> "Tensor | dict[str, Tensor]":
        if prediction.attention is None:
            raise CaptioningError(
                "there is no attention to draw: the model has none, or the grids of an ensemble "
                "differ; leave attention=false"
            )
        if self.maps == "mean" or not prediction.words:
            return prediction.attention
        maps = self.captioner.attention_maps(image, prediction.words)
        if self.maps != "all" and self.maps not in maps:
            raise CaptioningError(
                f"maps={self.maps} is not allowed; it must be one of mean, all, {', '.join(maps)}"
            )
        return maps if self.maps == "all" else maps[self.maps]


if __name__ == "__main__":
    start(main)
