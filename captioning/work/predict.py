"""Captions of photographs and panels of attention, for `captioning.predict`.

H rows and W columns of pixels, T words.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from torch import Tensor

from captioning.captioner import Prediction, TrainedCaptioner
from captioning.config.paths import given_path
from captioning.config.settings import settings_given
from captioning.errors import CaptioningError
from captioning.runs.kept_attention import FILE, KeptCaption, write


def caption_files(
    config: DictConfig, paths: Iterable[Path], complain: Callable[[object], None]
) -> Iterator[dict[str, Any]]:
    """A line for each file that can be read, in order; `complain` is told of the others.

    Raises:
        CaptioningError: there is no such captioner, or no panel of it.
    """
    captioner = TrainedCaptioner.from_checkpoint(
        config.checkpoint, str(config.device), settings_given(config.decoding), list(config.modules), config.bfloat16
    )
    panels = Panels(given_path(config.panels), captioner, config.maps, config.keep) if config.attention else None
    read = _readable(captioner, paths, complain)
    while batch := list(itertools.islice(read, config.batch_size)):
        predictions = captioner.predict([pixels for _, pixels in batch])
        for (path, pixels), prediction in zip(batch, predictions, strict=True):
            line: dict[str, Any] = {"image": str(path), **_said(prediction)}
            if prediction.alternatives:
                line["alternatives"] = [_said(other) for other in prediction.alternatives]
            if panels:
                line["panel"] = str(panels.save(path, pixels, prediction))
            yield line
    if panels:
        panels.end()


def _said(prediction: Prediction) -> dict[str, Any]:
    return {
        "caption": prediction.caption,
        "score": round(prediction.score, 4),
        "confidence": prediction.confidence,
    }


def _readable(
    captioner: TrainedCaptioner, paths: Iterable[Path], complain: Callable[[object], None]
) -> Iterator[tuple[Path, tuple[Tensor, ...]]]:
    for path in paths:
        try:
            yield path, captioner.read(path)
        except CaptioningError as error:
            complain(error)


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
        """Draws the photograph of the file `path` as PNG and PDF; of two files of one name the second gets a number.

        Raises:
            CaptioningError: there is no attention, or none of that name.
        """
        from captioning.report.panels import LONGEST, save_panel  # here, because Matplotlib takes half a second

        shown = self._shown(photograph, prediction)
        names = (f"{path.stem}{end}" for end in itertools.chain([""], (f"-{n}" for n in itertools.count(2))))
        name = next(name for name in names if name.lower() not in self._taken)  # some file systems ignore the case
        self._taken.add(name.lower())
        panel = self.folder / f"{name}.png"
        transform = self.captioner.networks[0].backbone.transform
        whole, frame = transform.whole(path, LONGEST) / 255, transform.frame(path)
        save_panel(panel, whole, prediction.words, shown, title=prediction.caption, frame=frame)
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
            raise CaptioningError(
                "there is no attention to draw, as of a model without it and of an ensemble whose members look at "
                "different grids: leave attention=false"
            )
        if self.maps == "mean" or not prediction.words:
            return prediction.attention
        found = self.captioner.attention_maps(photograph, prediction.words)
        if self.maps != "all" and self.maps not in found:
            raise CaptioningError(f"maps={self.maps} is not allowed; it must be one of mean, all, {', '.join(found)}")
        return found if self.maps == "all" else found[self.maps]
