"""What calls from Python return: folders of results, which are read when they are asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.data.readers.captions import CaptionRecord
from captioning.metrics.metric import MAIN
from captioning.metrics.table import HEADLINES, score_called
from captioning.report.gallery import ImageEntry, data_uri, lay_images
from captioning.report.runs import find_runs, read_record
from captioning.report.systems import System, group
from captioning.report.tables import format_value, score_names, table_rows
from captioning.runs.evaluation.captions import captions_file, read_records
from captioning.runs.folders.history import read_history
from captioning.runs.folders.record import Record
from captioning.runs.settings import each_setting, read_settings

if TYPE_CHECKING:
    from captioning.captioner import TrainedCaptioner

SHOWN, PIXELS = 8, 240
"""Test images that a notebook shows, and their longer side."""


@dataclass(frozen=True)
class Tested:
    """What a test has left in its folder. A notebook shows scores, captions and maps."""

    folder: Path

    @cached_property
    def scores(self) -> dict[str, float]:
        """By name, as they are printed: times 100 where they are shares; empty without a test."""
        file = self.folder / "scores.json"
        return read_record(file).known if file.exists() else {}

    @cached_property
    def captions(self) -> list[CaptionRecord]:
        """In the order of the images, with their references and scores; empty without a test."""
        return read_records(self.folder) if captions_file(self.folder).exists() else []

    @property
    def _headlines(self) -> dict[str, str]:
        """The main scores as they are printed."""
        names = [name for name in HEADLINES if name in self.scores]
        return {name: score_called(name).printed(self.scores[name]) for name in names}

    def __repr__(self) -> str:
        shown = [f"{name} {score}" for name, score in self._headlines.items()]
        return f"{type(self).__name__}({', '.join([str(self.folder), *shown])})"

    def _repr_html_(self) -> str:
        """The main scores, and the first images with captions, or the panels of their maps."""
        scores = self._headlines
        return _html_table(list(scores), [list(scores.values())]) + self.pictures()

    def pictures(self) -> str:
        """The first test images with captions and maps, as HTML."""
        panels = sorted((self.folder / "attention").glob("*.png"))[:SHOWN]
        pictures = [_picture("image/png", panel.read_bytes(), "") for panel in panels]
        return "".join(pictures or self._captioned_images())

    def _captioned_images(self) -> list[str]:
        lines = self.captions[:SHOWN]
        images = [ImageEntry(line.image_id, line.references, {0: line}) for line in lines]
        recorded = dict(each_setting(read_settings(self.folder / "config.yaml")))
        lay_images(images, [recorded], "auto", PIXELS)
        return [
            _picture("image/jpeg", image.jpeg, line.caption)
            for image, line in zip(images, lines, strict=True)
        ]


@dataclass(frozen=True, repr=False)
class Trained(Tested):
    """A run that has ended."""

    @property
    def best(self) -> float | None:
        """The validation score that chose the weights, as `callbacks.checkpoint.monitor` has it."""
        result = Record.of(self.folder).result
        return None if result is None else result.best

    @cached_property
    def history(self) -> list[dict[str, float]]:
        """The rows of `metrics.csv`, such as `{"step": 50, "val/CIDEr": 27.0}`."""
        return read_history(self.folder)

    @property
    def checkpoint(self) -> Path:
        """The weights that were tested."""
        return self.folder / "checkpoints" / "best.ckpt"

    def captioner(self, device: str = "auto") -> "TrainedCaptioner":
        """The captioner of the tested weights: `result.captioner().caption("photograph.jpg")`."""
        from captioning.captioner import TrainedCaptioner  # here, because PyTorch takes seconds

        return TrainedCaptioner.from_checkpoint(self.checkpoint, device)


class TrainedRuns(list[Trained]):
    """Runs, such as those of several seeds: `train(.., seed=[1, 2]) + train(.., seed=[1, 2])`."""

    def __add__(self, others: Sequence[Trained]) -> "TrainedRuns":  # type: ignore[override]
        return TrainedRuns([*self, *others])

    @property
    def systems(self) -> list[System]:
        """The tested runs, those that differ in their seed alone together; the best first."""
        return group([found for run in self for found in find_runs(run.folder)[0]])

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each system, as in `table.csv`: means of the seeds, and their deviations."""
        rows = table_rows({"": self.systems}, cider=None)
        return [{key: value for key, value in row.items() if value is not None} for row in rows]

    def _repr_html_(self) -> str:
        systems = self.systems
        names = score_names(systems, MAIN)
        rows = [
            [system.label, system.label_with_seeds]
            + [format_value(system.score(name), name) for name in names]
            for system in systems
        ]
        table = _html_table(["system", "runs", *names], rows)
        return table + "".join(run.pictures() for run in self[:1])


@dataclass(frozen=True)
class Report:
    """A report that was written; a notebook shows its page."""

    folder: Path

    @property
    def page(self) -> Path:
        return self.folder / "index.html"

    def _repr_html_(self) -> str:
        page = escape(self.page.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" width="100%" height="720" style="border: 0"></iframe>'


def _html_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["".join(f"<th>{escape(head)}</th>" for head in heads)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _picture(kind: str, content: bytes, caption: str) -> str:
    """An image above its caption; the caption alone where there is no image."""
    image = f'<img src="{data_uri(kind, content)}" style="max-width: 720px">' if content else ""
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"
