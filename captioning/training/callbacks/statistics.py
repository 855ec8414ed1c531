"""Statistics of decoded captions and attention, logged at every validation and in the test."""

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import lightning as L
import torch
from torch import nn
from torchmetrics import MeanMetric

from captioning.config.types import validated
from captioning.data.batch import Batch
from captioning.decoding import GeneratedCaption
from captioning.machine import all_gather_object
from captioning.metrics.attention import AttentionStatistics, PointingScore, on_full_image
from captioning.metrics.wording import TrainingCaptions, caption_statistics
from captioning.training.module import CaptioningModule


class CaptionCallback(L.Callback):
    """Base of callbacks on decoded captions, with the same hooks for validation and test.

    By default it collects `kept` of each caption, by the image's position in the split, from all
    processes, and passes it to `finish` before captions are scored.
    """

    splits: tuple[str, ...] = ("val", "test")
    images: int | None = None  # limit to the first images of a split

    def begin(self, trainer: L.Trainer, module: CaptioningModule) -> None:
        self._kept: dict[int, Any] = {}

    def add(
        self,
        trainer: L.Trainer,
        module: CaptioningModule,
        batch: Batch,
        captions: Sequence[GeneratedCaption],
    ) -> None:
        for position, caption in zip(batch.index.tolist(), captions, strict=True):
            if self.images is None or position < self.images:
                self._kept[position] = self.kept(module, caption)

    def end(self, trainer: L.Trainer, module: CaptioningModule, split: str) -> None:
        # images may be repeated in some processes
        self.finish(
            trainer, module, split, dict(sorted(ChainMap(*all_gather_object(self._kept)).items()))
        )

    def kept(self, module: CaptioningModule, caption: GeneratedCaption) -> Any:
        return caption

    def finish(
        self, trainer: L.Trainer, module: CaptioningModule, split: str, kept: dict[int, Any]
    ) -> None:
        pass

    def _split(self, trainer: L.Trainer) -> str | None:
        module: Any = trainer.lightning_module
        split = "test" if trainer.testing else "val"
        decoded = trainer.testing or module.val_scores is not None
        return split if decoded and split in self.splits and not trainer.sanity_checking else None

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        if self._split(trainer):
            self.begin(trainer, pl_module)

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Batch, *_: Any
    ) -> None:
        if self._split(trainer):
            self.add(trainer, pl_module, batch, outputs)

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if split := self._split(trainer):
            self.end(trainer, pl_module, split)

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_end = on_validation_batch_end  # type: ignore[assignment]
    on_test_epoch_end = on_validation_epoch_end


class GradientNorm(L.Callback):
    """Log `train/gradient norm`, Euclidean, before clipping; with `modules` also of the backbone
    and each model part.

    Of the gradient of the loss per word, as it is clipped.
    """

    @validated
    def __init__(self, modules: bool = False) -> None:
        self.modules = modules

    def setup(self, trainer: L.Trainer, pl_module: CaptioningModule, stage: str) -> None:  # type: ignore[override]
        # Hooks of callbacks come before the gradient is divided by the number of words.
        pl_module.on_gradients = partial(self._log, pl_module)

    def _log(self, module: CaptioningModule) -> None:
        parts = {"": cast(nn.Module, module)}
        if self.modules:
            model = cast(nn.Module, module.model).named_children()
            parts |= {
                " backbone": module.backbone,
                **{f" model.{name}": part for name, part in model},
            }
        for name, part in parts.items():
            if gradients := [p.grad for p in part.parameters() if p.grad is not None]:
                module.log(
                    f"train/gradient norm{name}", torch.stack(torch._foreach_norm(gradients)).norm()
                )


class LogWording(CaptionCallback):
    """Log `val/bad_endings` and the other statistics of `captioning.metrics.wording`."""

    _training: TrainingCaptions | None = None

    def kept(self, module: CaptioningModule, caption: GeneratedCaption) -> GeneratedCaption:
        return caption.without_maps()

    def finish(
        self,
        trainer: L.Trainer,
        module: CaptioningModule,
        split: str,
        kept: dict[int, GeneratedCaption],
    ) -> None:
        if self._training is None:
            examples = trainer.datamodule.examples("train")  # type: ignore[attr-defined]
            self._training = TrainingCaptions(
                reference.words for example in examples for reference in example.references
            )
        vocabulary, captions = module.vocabulary, list(kept.values())
        words = [vocabulary.words_of(caption.tokens) for caption in captions]
        statistics = caption_statistics(words, captions, self._training, vocabulary.language.code)
        module.log_dict({f"{split}/{name}": value for name, value in statistics.items()})


class LogAttentionStatistics(CaptionCallback):
    """Log `val/attention entropy` and the other `AttentionStatistics` of models with attention.

    Also log the mean `attention_shares` of the references, `val/attention on memory` and `on
    image`, in percent.
    """

    def begin(self, trainer: L.Trainer, module: CaptioningModule) -> None:
        self.metric = AttentionStatistics().to(module.device)
        self.shares: dict[str, MeanMetric] = {}

    def add(
        self,
        trainer: L.Trainer,
        module: CaptioningModule,
        batch: Batch,
        captions: Sequence[GeneratedCaption],
    ) -> None:
        present = module.backbone.valid_mask(batch.inputs)  # count only locations on the image
        locations = [slice(None)] * len(captions) if present is None else present.cpu()
        pairs = zip(captions, locations, strict=True)
        self.metric.update(
            caption.attention[:, there] for caption, there in pairs if caption.attention is not None
        )
        model: Any = module.model
        if getattr(
            model, "shares_attention", False
        ):  # the others need no second pass through the backbone
            for name, shares in model.attention_shares(
                module.context(batch), batch.sources
            ).items():
                metric = self.shares.setdefault(
                    f"attention on {name}", MeanMetric().to(module.device)
                )
                metric.update(shares.flatten()[batch.word_index])

    def end(self, trainer: L.Trainer, module: CaptioningModule, split: str) -> None:
        statistics = self.metric.compute() | {
            name: 100 * metric.compute() for name, metric in self.shares.items()
        }
        module.log_dict(
            {f"{split}/{name}": value for name, value in statistics.items() if value.isfinite()}
        )


class Pointing(CaptionCallback):
    """Log the pointing score of the test's references under teacher forcing.

    A second score replaces each image by the next one of the split: the score of attention that
    depends on the caption and on typical positions, but not on the image. Neither depends on
    batching. Nothing is logged without boxes, attention, or image positions.
    """

    splits = ("test",)

    def begin(self, trainer: L.Trainer, module: CaptioningModule) -> None:
        self.metrics = [PointingScore().to(module.device) for _ in range(2)]
        examples = trainer.datamodule.examples("test")  # type: ignore[attr-defined]
        boxes = any(reference.nouns for example in examples for reference in example.references)
        self.active = boxes and module.backbone.located

    @torch.no_grad()
    def add(
        self,
        trainer: L.Trainer,
        module: CaptioningModule,
        batch: Batch,
        captions: Sequence[GeneratedCaption],
    ) -> None:
        if not self.active:
            return
        dataset = trainer.datamodule.datasets["test"]  # type: ignore[attr-defined]
        frame, positions = module.backbone.transform.frame, batch.index.tolist()
        nouns = [
            on_full_image(dataset.chosen(row, epoch=0), frame(dataset.examples[row].path))
            for row in positions
        ]
        others = dataset.inputs.rows([(row + 1) % len(dataset.examples) for row in positions])
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
            module.log_dict(
                {"test/pointing": pointing, "test/pointing (images shuffled)": shuffled}
            )
