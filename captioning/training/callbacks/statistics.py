"""Statistics of decoded captions and attention, logged at every validation and in the test.

B images, N captions per image, C prediction steps, L context vectors.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import lightning as L
import torch

from captioning.data.batch import Batch
from captioning.decoding import Caption
from captioning.machine import gathered
from captioning.metrics.attention import AttentionStatistics, PointingScore, framed
from captioning.metrics.wording import Said, TrainingCaptions, of_model
from captioning.training.module import CaptioningModule


class CaptionCallback(L.Callback):
    """Base of callbacks on decoded captions: `begin`, `add` for each batch, and `end` before captions are scored.

    Attributes:
        splits: `val` for validations, `test` for the test.
    """

    splits: tuple[str, ...] = ("val", "test")

    def begin(self, trainer: L.Trainer, module: CaptioningModule, split: str) -> None:
        """Start a validation or the test."""

    def add(self, trainer: L.Trainer, module: CaptioningModule, batch: Batch, captions: Sequence[Caption]) -> None:
        """Take the captions of a batch."""

    def end(self, trainer: L.Trainer, module: CaptioningModule, split: str) -> None:
        """Finish after the last batch; Lightning calls this before the module scores the captions."""

    def _call(self, function: Callable[..., None], trainer: L.Trainer, module: L.LightningModule, *given: Any) -> None:
        split = "test" if trainer.testing else "val"
        if split in self.splits and not trainer.sanity_checking:
            assert isinstance(module, CaptioningModule)
            function(trainer, module, *(given or (split,)))

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._call(self.begin, trainer, pl_module)

    def on_validation_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *batch: Any) -> None:
        self._call(self.add, trainer, pl_module, batch[1], batch[0])  # of outputs, batch and numbers

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._call(self.end, trainer, pl_module)

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end  # type: ignore[assignment]
    on_test_epoch_end = on_validation_epoch_end


class LogAttentionStatistics(CaptionCallback):
    """Log `val/attention entropy` and the others of `AttentionStatistics`; nothing for models without attention."""

    def begin(self, trainer: L.Trainer, module: CaptioningModule, split: str) -> None:
        self.metric = AttentionStatistics().to(module.device)

    def add(self, trainer: L.Trainer, module: CaptioningModule, batch: Batch, captions: Sequence[Caption]) -> None:
        present = module.backbone.present(batch.inputs)  # of the maps, only locations that the image has count
        locations = [slice(None)] * len(captions) if present is None else present.cpu()
        self.metric.update(
            caption.attention[:, each]
            for caption, each in zip(captions, locations, strict=True)
            if caption.attention is not None
        )

    def end(self, trainer: L.Trainer, module: CaptioningModule, split: str) -> None:
        statistics = self.metric.compute()
        module.log_dict({f"{split}/{name}": value for name, value in statistics.items() if value.isfinite()})


class LogWording(CaptionCallback):
    """Log `val/bad_endings` and the others of `captioning.metrics.wording`, over the images of all processes."""

    _training: TrainingCaptions | None = None

    def begin(self, trainer: L.Trainer, module: CaptioningModule, split: str) -> None:
        self._captions: dict[int, Said] = {}
        if self._training is None:
            examples = trainer.datamodule.examples("train")  # type: ignore[attr-defined]
            self._training = TrainingCaptions(reference.words for each in examples for reference in each.references)

    def add(self, trainer: L.Trainer, module: CaptioningModule, batch: Batch, captions: Sequence[Caption]) -> None:
        for position, caption in zip(batch.index.tolist(), captions, strict=True):
            words = module.vocabulary.decode(caption.tokens)
            self._captions[position] = Said(words, caption.finished, caption.entropy)

    def end(self, trainer: L.Trainer, module: CaptioningModule, split: str) -> None:
        every: dict[int, Said] = {}
        for captions in gathered(self._captions):  # some processes have repeated images
            every |= captions
        statistics = of_model(list(every.values()), self._training)
        module.log_dict({f"{split}/{name}": value for name, value in statistics.items()})


class Pointing(CaptionCallback):
    """Log the pointing score of the test's references under teacher forcing.

    A second score has each image replaced by the next one of the split: that of a model whose attention depends on the
    caption and the usual positions, not on the image. Neither depends on how images are batched. Nothing is logged
    without boxes, attention, or positions to compare with boxes.
    """

    splits = ("test",)

    def begin(self, trainer: L.Trainer, module: CaptioningModule, split: str) -> None:
        self.metrics = [PointingScore().to(module.device) for _ in range(2)]
        examples = trainer.datamodule.examples("test")  # type: ignore[attr-defined]
        boxes = any(reference.nouns for example in examples for reference in example.references)
        self.active = boxes and module.backbone.located

    @torch.no_grad()
    def add(self, trainer: L.Trainer, module: CaptioningModule, batch: Batch, captions: Sequence[Caption]) -> None:
        if not self.active:
            return
        dataset = trainer.datamodule.datasets["test"]  # type: ignore[attr-defined]
        positions = batch.index.tolist()
        nouns = []
        for position in positions:
            frame = module.backbone.transform.frame(dataset.examples[position].path)
            nouns.append(framed(dataset.chosen(position, epoch=0), frame))
        others = dataset.inputs.rows([(position + 1) % len(dataset.examples) for position in positions])
        shuffled = replace(batch, inputs=others.to(batch.inputs.device))
        for metric, images in zip(self.metrics, (batch, shuffled), strict=True):
            context = module.context(images)
            attention = module.model(context, batch.sources, need_weights=True).attention
            if attention is None:
                self.active = False
                return
            metric.update(attention, nouns, context.grid)

    def end(self, trainer: L.Trainer, module: CaptioningModule, split: str) -> None:
        if self.active:
            pointing, shuffled = (metric.compute() for metric in self.metrics)
            module.log_dict({"test/pointing": pointing, "test/pointing (images shuffled)": shuffled})
