"""The results of a test, written into the run folder."""

from pathlib import Path

import lightning as L

from captioning.config.types import validated
from captioning.data.example import photographs, reference_texts
from captioning.metrics import Scores
from captioning.runs.results import write_captions, write_scores
from captioning.training.module import CaptioningModule
from captioning.training.provenance import provenance


class Results(L.Callback):
    """Writes the test split's captions before any scorer starts, then once more with their scores.

    Args:
        folder: the run folder.
    """

    @validated
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
        split = trainer.datamodule.examples("test")  # type: ignore[attr-defined]
        source = provenance(trainer) | {"images_tested": len(self._captions), "images_of_split": len(split)}
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
