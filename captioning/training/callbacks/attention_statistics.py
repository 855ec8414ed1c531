"""Logs whether attention moves while captions are decoded, at every validation and in the test."""

from typing import Any

import lightning as L

from captioning.data.batch import Batch
from captioning.metrics.attention import AttentionStatistics
from captioning.training.module import CaptioningModule


class LogAttentionStatistics(L.Callback):
    """Logs `val/attention entropy` and the others of `AttentionStatistics`; silent for models without attention."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.metric = AttentionStatistics().to(pl_module.device)

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """`outputs` are the captions of the batch; of the maps counts what the image has."""
        assert isinstance(pl_module, CaptioningModule)
        present = pl_module.backbone.present(batch.inputs)
        places = [slice(None)] * len(outputs) if present is None else present.cpu()
        self.metric.update(
            caption.attention[:, each]
            for caption, each in zip(outputs, places, strict=True)
            if caption.attention is not None
        )

    on_test_batch_end = on_validation_batch_end

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._log("val", pl_module)

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._log("test", pl_module)

    def _log(self, split: str, module: L.LightningModule) -> None:
        statistics = self.metric.compute()
        module.log_dict({f"{split}/{name}": value for name, value in statistics.items() if value.isfinite()})
        self.metric.reset()
