"""What a test leaves in the run folder: `captions.jsonl` and `scores.json`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L

from captioning.data.example import Example
from captioning.metrics import Scores
from captioning.training.module import CaptioningModule
from captioning.training.provenance import provenance


class Results(L.Callback):
    """Writes the test split's captions before any scorer starts, then once more with their scores.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Writes the captions alone; Lightning calls this before the module scores them."""
        assert isinstance(pl_module, CaptioningModule)
        self._captions = pl_module.test_scores.captions()
        self._write(trainer)

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Writes them with their scores, and the scores of the whole."""
        assert isinstance(pl_module, CaptioningModule)
        scores = pl_module.latest["test"]
        self._write(trainer, scores)
        # beside the module's scores those that other callbacks have logged, such as the pointing score
        logged = {
            name.removeprefix("test/"): float(value)
            for name, value in trainer.callback_metrics.items()
            if name.startswith("test/") and name.removeprefix("test/") not in scores.corpus
        }
        record = {"scores": scores.corpus | logged, "provenance": provenance(trainer)}
        if trainer.is_global_zero:
            (self.folder / "scores.json").write_text(json.dumps(record, indent=2) + "\n")

    def _write(self, trainer: L.Trainer, scores: Scores | None = None) -> None:
        if trainer.is_global_zero:
            examples = trainer.datamodule.examples("test")  # type: ignore[attr-defined]
            write_captions(self.folder / "captions.jsonl", examples, self._captions, scores)


def write_captions(
    path: Path, examples: Sequence[Example], captions: Mapping[int, str], scores: Scores | None = None
) -> None:
    """One JSON line per image: `image_id`, `caption`, `references` and, once there are any, per-image `scores`.

    Args:
        path: the file.
        examples: of the split.
        captions: by position in the split, in ascending order.
        scores: in the same order.
    """
    lines = []
    for row, (position, caption) in enumerate(captions.items()):
        example = examples[position]
        line: dict[str, Any] = {
            "image_id": example.image_id,
            "caption": caption,
            "references": [reference.text for reference in example.references],
        }
        if scores is not None:
            line["scores"] = {name: round(value, 4) for name, value in scores.per_image[row].items()}
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
