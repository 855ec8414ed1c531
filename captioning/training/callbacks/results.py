"""What a test or an evaluation leaves in its folder: `captions.jsonl` and `scores.json`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L

from captioning.borders.files import to_json, write_json, write_text
from captioning.data.example import photographs, reference_texts
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
        self._root = pl_module.config.get("data", {}).get("reader", {}).get("root")
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
        source = provenance(trainer)
        if trainer.is_global_zero:
            write_scores(self.folder / "scores.json", scores.corpus | logged, source)

    def _write(self, trainer: L.Trainer, scores: Scores | None = None) -> None:
        if trainer.is_global_zero:
            split = trainer.datamodule.examples("test")  # type: ignore[attr-defined]
            examples = [split[position] for position in self._captions]
            write_captions(
                self.folder / "captions.jsonl",
                [example.image_id for example in examples],
                list(self._captions.values()),
                reference_texts(examples),
                scores,
                photographs(examples, self._root),
            )


def write_captions(
    path: Path,
    image_ids: Sequence[int | str],
    captions: Sequence[str],
    references: Sequence[Sequence[str]],
    scores: Scores | None = None,
    photographs: Sequence[str] | None = None,
) -> None:
    """One JSON line per image: `image_id`, `caption`, `references`, and `photograph` and per-image `scores` if known.

    The scores are written as computed, since rounding would undo their order.

    Args:
        path: the file.
        image_ids: of the images.
        captions: one for each.
        references: those of each.
        scores: of the same images in the same order.
        photographs: of the images, as `captioning.data.example.photographs` calls them.
    """
    lines = []
    for row, (image_id, caption, texts) in enumerate(zip(image_ids, captions, references, strict=True)):
        line: dict[str, Any] = {"image_id": image_id, "caption": caption, "references": list(texts)}
        if photographs is not None:
            line["photograph"] = photographs[row]
        if scores is not None:
            line["scores"] = scores.per_image[row]
        lines.append(to_json(line, ensure_ascii=False) + "\n")
    write_text(path, "".join(lines))


def write_scores(path: Path, scores: Mapping[str, float], provenance: Mapping[str, Any]) -> None:
    """The scores of all captions, and where they come from."""
    write_json(path, {"scores": dict(scores), "provenance": dict(provenance)})
