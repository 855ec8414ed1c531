"""Statistics of decoded captions and attention, logged at every validation and in the test."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from lightning import Callback, Trainer
from torch import nn
from torchmetrics import MeanMetric

from captioning.config.types import validated
from captioning.data.batch import Batch
from captioning.data.dataset import CaptionDataset
from captioning.data.example import reference_texts, reference_words
from captioning.decoding import GeneratedCaption
from captioning.decoding.maps import reference_maps
from captioning.machine import gather_by_position
from captioning.metrics.attention import AttentionStatistics, PointingScore, on_full_image
from captioning.metrics.metric import SHUFFLED
from captioning.metrics.wording import TrainingCaptions, commonest_caption
from captioning.runs.evaluation.generation import wording_of
from captioning.training.module import CaptioningModule

log = logging.getLogger(__name__)
Captions = dict[int, GeneratedCaption]
"""By the image's position in the split."""


@dataclass(frozen=True)
class DecodedSplit:
    """A validation or a test."""

    trainer: Trainer
    module: CaptioningModule
    name: str

    @property
    def dataset(self) -> CaptionDataset:
        return self.trainer.datamodule.datasets[self.name]  # type: ignore[attr-defined]


class CaptionCallback(Callback):
    """Base of callbacks on decoded captions, with the same hooks for validation and test.

    By default it collects the captions of all processes, and passes them to `finish` before they
    are scored.

    Example:
        Log `val/longest` and `test/longest`, tokens of the longest caption:

        >>> class LogLongest(CaptionCallback):
        ...     def finish(self, split, captions):
        ...         lengths = [len(caption.tokens) for caption in captions.values()]
        ...         split.module.log(f"{split.name}/longest", float(max(lengths)))
        >>> from types import SimpleNamespace
        >>> split = DecodedSplit(None, SimpleNamespace(log=print), "val")
        >>> LogLongest().finish(split, {0: GeneratedCaption([5, 6, 2], -1.5, None)})
        val/longest 3.0
    """

    splits: tuple[str, ...] = ("val", "test")
    images: int | None = None  # limit to the first images of a split

    def begin(self, split: DecodedSplit) -> None:
        self._kept: Captions = {}

    def add(self, split: DecodedSplit, batch: Batch, captions: Sequence[GeneratedCaption]) -> None:
        for position, caption in zip(batch.index.tolist(), captions, strict=True):
            if self.images is None or position < self.images:
                # The maps of a whole split would fill the memory.
                self._kept[position] = caption.without_maps() if self.images is None else caption

    def end(self, split: DecodedSplit) -> None:
        self.finish(split, gather_by_position(self._kept))

    def finish(self, split: DecodedSplit, captions: Captions) -> None:
        """Use the captions of all processes."""

    def _split(self, trainer: Trainer) -> DecodedSplit | None:
        module: Any = trainer.lightning_module
        name = "test" if trainer.testing else "val"
        decoded = trainer.testing or module.val_scores
        if name not in self.splits or not decoded or trainer.sanity_checking:
            return None
        return DecodedSplit(trainer, module, name)

    def on_validation_epoch_start(self, trainer: Trainer, *_: Any) -> None:
        if split := self._split(trainer):
            self.begin(split)

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Batch, *_: Any
    ) -> None:
        if split := self._split(trainer):
            self.add(split, batch, outputs)

    def on_validation_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        if split := self._split(trainer):
            self.end(split)

    on_test_epoch_start = on_validation_epoch_start  # type: ignore[assignment]
    on_test_batch_end = on_validation_batch_end  # type: ignore[assignment]
    on_test_epoch_end = on_validation_epoch_end  # type: ignore[assignment]


class GradientNorm(Callback):
    """Log `train/gradient norm`, Euclidean, before clipping, and with `modules` those of the
    backbone and each model part. The gradient is of the loss per word, as it is clipped.
    """

    @validated
    def __init__(self, modules: bool = False):
        self.modules = modules

    def setup(self, trainer: Trainer, pl_module: CaptioningModule, stage: str) -> None:  # type: ignore[override]
        # Hooks of callbacks come before the gradient is divided by the number of words.
        pl_module.on_gradients = partial(self._log, pl_module)

    def _log(self, module: CaptioningModule) -> None:
        parts: dict[str, nn.Module] = {"": module}
        if self.modules:
            parts[" backbone"] = module.backbone
            parts |= {f" model.{name}": part for name, part in module.model.named_children()}
        for name, part in parts.items():
            if gradients := [p.grad for p in part.parameters() if p.grad is not None]:
                norm = torch.stack(torch._foreach_norm(gradients)).norm()
                module.log(f"train/gradient norm{name}", norm)


class LogWording(CaptionCallback):
    """Log `val/bad_endings` and the other statistics of `captioning.metrics.wording`."""

    _training: TrainingCaptions | None = None

    def finish(self, split: DecodedSplit, captions: Captions) -> None:
        if self._training is None:
            examples = split.trainer.datamodule.splits["train"]  # type: ignore[attr-defined]
            self._training = TrainingCaptions(reference_words(examples))
        module, examples = split.module, split.dataset.examples
        texts = {i: module.vocabulary.decode(caption.tokens) for i, caption in captions.items()}
        references = reference_texts([examples[position] for position in texts])
        if warning := commonest_caption([*texts.values()], references):
            log.warning("%s: %s", split.name, warning)
        values = wording_of([*captions.values()], module.vocabulary, self._training)
        module.log_dict({f"{split.name}/{name}": value for name, value in values.items()})


class LogAttentionStatistics(CaptionCallback):
    """Log `val/attention entropy` and the other `AttentionStatistics` of models with attention.

    Also log the mean `attention_shares` of the references in percent, `val/attention on memory` and
    `val/attention on image`.
    """

    def begin(self, split: DecodedSplit) -> None:
        self.metric = AttentionStatistics().to(split.module.device)
        self.shares: dict[str, MeanMetric] = {}

    def add(self, split: DecodedSplit, batch: Batch, captions: Sequence[GeneratedCaption]) -> None:
        module, model = split.module, split.module.model
        valid = module.backbone.valid_mask(batch.inputs)  # count only locations on the image
        locations = [slice(None)] * len(captions) if valid is None else valid.cpu()
        self.metric.update(
            caption.attention[:, there]
            for caption, there in zip(captions, locations, strict=True)
            if caption.attention is not None
        )
        if not model.shares_attention:
            return  # and needs no second pass through the backbone
        shares = model.attention_shares(module.context(batch), batch.sources)
        for name, share in shares.items():
            self.shares.setdefault(name, MeanMetric().to(module.device))
            self.shares[name].update(share.flatten()[batch.word_index])

    def end(self, split: DecodedSplit) -> None:
        for name, value in self.metric.compute().items():
            if value.isfinite():
                split.module.log(f"{split.name}/{name}", value)
        for name, metric in self.shares.items():
            split.module.log(f"{split.name}/attention on {name}", 100 * metric.compute())


class Pointing(CaptionCallback):
    """Log the pointing score of the test's references under teacher forcing.

    A second score replaces each image by the next one of the split: the score of attention that
    depends on the caption and on typical positions, but not on the image. Neither depends on
    batching. Nothing is logged without boxes, attention, or image positions.
    """

    splits = ("test",)

    def begin(self, split: DecodedSplit) -> None:
        self.metrics = [PointingScore().to(split.module.device) for _ in range(2)]
        self.active = split.module.backbone.located and any(
            reference.nouns
            for example in split.dataset.examples
            for reference in example.references
        )

    @torch.no_grad()
    def add(self, split: DecodedSplit, batch: Batch, captions: Sequence[GeneratedCaption]) -> None:
        if not self.active:
            return
        module, dataset = split.module, split.dataset
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
            targets, numbers = batch.tokens[..., 1:], module.vocabulary.word_numbers
            metric.update(reference_maps(attention, targets, numbers), nouns, context.grid)

    def end(self, split: DecodedSplit) -> None:
        if self.active:
            for name, metric in zip(("", SHUFFLED), self.metrics, strict=True):
                split.module.log(f"test/pointing{name}", metric.compute())
