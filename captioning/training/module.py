"""The Lightning module of every model: steps, decoding, scores and optimiser."""

import math
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch
from lightning import LightningModule
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torchmetrics import MeanMetric

from captioning.backbones.base import Backbone
from captioning.backbones.context import ContextSet
from captioning.config.settings import Settings
from captioning.data.batch import Batch
from captioning.data.vocabulary import Vocabulary
from captioning.decoding import GeneratedCaption
from captioning.decoding.confidence import Search, quantiles_of, with_entropy
from captioning.errors import CaptioningError
from captioning.machine import gather_by_position
from captioning.metrics import Scorer, Scores
from captioning.metrics.gathered import CaptionScores
from captioning.metrics.table import BOUND
from captioning.models.protocol import Captioner
from captioning.runs.checkpoints.checkpoint import Content, captioner_section
from captioning.training.objectives import BatchRandom, Loss, Objective
from captioning.training.objectives.cross_entropy import likelihood


class CaptioningModule(LightningModule):
    """Trains by `objective`, validates and tests by scores of freely decoded captions.

    Args:
        scorers: `val` and `test`, each with the references of its split; without `val`, validation
            decodes no captions.
        optimizer: made from the trainable parameters.
        backbone_lr: learning rate of the backbone; None: the same as for the model.
        pretrained_lr: that of a language model's own weights.
        schedule: goes on at each optimiser step, or waits for a plateau of the monitored score.
        seed: of the random numbers of every batch.
        stored: the run's settings, which checkpoints have; without them no captioner is loaded.
        monitored: columns of scores that callbacks monitor, without which training ends.
    """

    training_has_begun = False
    _validated = -1
    _words = 0

    def __init__(
        self,
        *,
        backbone: Backbone,
        model: Captioner,
        objective: Objective,
        search: Search,
        scorers: Mapping[str, Scorer],
        vocabulary: Vocabulary,
        optimizer: Callable[[list[Any]], Optimizer],
        schedule: Callable[[Optimizer, int], LRScheduler],
        seed: int = 0,
        stored: Settings | None = None,
        monitored: Collection[str] = (),
        backbone_lr: float | None = None,
        pretrained_lr: float | None = None,
    ):
        super().__init__()
        self.backbone, self.model, self.objective = backbone, model, objective
        self.search = search
        if stored is None:
            stored = Settings()
        self.vocabulary, self.seed, self.stored = vocabulary, seed, stored
        others = [p for p in self.parameters() if p.requires_grad]
        groups = []
        for rate, own in ((backbone_lr, backbone.parameters()), (pretrained_lr, model.pretrained)):
            if rate is not None:
                chosen = dict.fromkeys(p for p in own if p.requires_grad)
                others = [p for p in others if p not in chosen]
                groups.append({"params": list(chosen), "lr": rate})
        # Built at once, or wrong settings would be refused only after features are computed.
        self._optimizer = optimizer([{"params": others}, *groups] if groups else others)
        self._schedule = schedule
        self.val_scores = CaptionScores(scorers["val"]) if "val" in scorers else None
        self.test_scores = CaptionScores(scorers["test"])
        self._monitored = monitored
        self.latest: dict[str, Scores] = {}  # of the last complete pass over `val` and `test`
        # Quantiles of the scores by which the search ranked the last validation's captions.
        self.quantiles: list[float] = []
        self._ranked: dict[int, float] = {}
        self.nll = MeanMetric()
        # called where callbacks cannot: before clipping
        self.on_gradients: Callable[[], None] = lambda: None

    def context(self, batch: Batch) -> ContextSet:
        return self.backbone.context_of(batch.inputs)

    def on_train_start(self) -> None:
        self.training_has_begun = True  # any checkpoint is restored by now

    # Every batch is seeded by its number, so that no RNG state is restored and a sampling search
    # draws the same numbers in every validation.

    def on_train_batch_start(self, batch: Batch, batch_index: int) -> None:
        trainer = self.trainer
        if trainer.current_epoch < (trainer.min_epochs or 0):
            trainer.should_stop = False  # else what early stopping said by then would hold later
        self._seed(0, self.trainer.fit_loop.epoch_loop.total_batch_idx)

    def on_validation_batch_start(
        self, batch: Batch, batch_index: int, dataloader_index: int = 0
    ) -> None:
        self._seed(2 if self.trainer.testing else 1, batch_index)

    on_test_batch_start = on_validation_batch_start  # type: ignore[assignment]

    def _seed(self, stage: int, batch: int) -> None:
        key = np.random.SeedSequence((self.seed, self.global_rank, stage, batch))
        torch.manual_seed(int(key.generate_state(1, np.uint64)[0]))

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """Return the loss, summed over the captions of this process' batch."""
        loss = self._loss(self.context(batch), batch)
        self._words += loss.words
        for name, term in loss.terms.items():
            self.log(f"train/{name}", term / loss.words, batch_size=loss.words)
        # undoes Lightning's division by the number of accumulated batches; ours is below
        return loss.total * self.trainer.accumulate_grad_batches

    def _loss(self, context: ContextSet, batch: Batch) -> Loss:
        step = self.trainer.fit_loop.epoch_loop.total_batch_idx
        random = BatchRandom(self.seed, step, batch.index)
        return self.objective(self.model, context, batch, random)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Normalise the gradient by the real words of all processes and accumulated batches.

        Lightning calls this after accumulation and before clipping, when processes have averaged
        their gradients, hence the factor `world_size`.
        """
        precision = torch.promote_types(self.dtype, torch.float32)  # type: ignore[arg-type]
        # filled on the device: a copy would wait for what a GPU still computes
        words = self._total(torch.full((), self._words, dtype=precision, device=self.device))
        self._words = 0
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, self.trainer.world_size / words)
        self.on_gradients()
        for name, value in self.objective.on_optimizer_step(self._total).items():
            self.log(f"train/{name}", value)

    def _total(self, value: Tensor) -> Tensor:
        """Sum over all processes."""
        if self.trainer.world_size > 1:
            torch.distributed.all_reduce(value)
        return value

    def on_validation_epoch_start(self) -> None:
        if self.val_scores:
            self.val_scores.start()

    def on_test_epoch_start(self) -> None:
        self.nll.reset()
        self.test_scores.start()

    def validation_step(self, batch: Batch, batch_index: int) -> list[GeneratedCaption]:  # type: ignore[override]
        """Log the likelihood of the references; return freely decoded captions."""
        context = self.context(batch)
        loss = self._loss(context, batch)
        if loss.words:
            self.nll.update(loss.terms["nll"] / loss.words, loss.words)
        if self.val_scores is None:
            return []
        captions = self._decode(context, batch, self.val_scores)
        scores = [caption.score for caption in captions]
        self._ranked |= zip(batch.index.tolist(), scores, strict=True)
        return captions

    def on_validation_epoch_end(self) -> None:
        self.log("val/nll", self.nll)
        if self.val_scores is None:
            return
        self.quantiles = quantiles_of(gather_by_position(self._ranked).values())
        self._validated, self._ranked = self.global_step, {}
        self._log_scores("val", self.val_scores)

    def test_step(self, batch: Batch, batch_index: int) -> list[GeneratedCaption]:  # type: ignore[override]
        """Add the likelihood of the references; return freely decoded captions."""
        context = self.context(batch)
        captions = self._decode(context, batch, self.test_scores)
        if len(batch.word_index):
            # one sample of the locations estimates the bound of Eq. 10 (D)
            sampled = torch.ones_like(batch.index, dtype=torch.bool)
            more: Any = {"sampled": sampled} if self.objective.stochastic else {}
            loss = likelihood(self.model, self.model(context, batch.sources, **more), batch)
            self.nll.update(loss.terms["nll"] / loss.words, loss.words)
        return captions

    def on_test_epoch_end(self) -> None:
        nll, bound = self.nll.compute(), BOUND if self.objective.stochastic else ""
        self.log_dict({f"test/nll{bound}": nll, f"test/perplexity{bound}": nll.exp()})
        self._log_scores("test", self.test_scores)

    def _decode(
        self, context: ContextSet, batch: Batch, scores: CaptionScores
    ) -> list[GeneratedCaption]:
        captions = with_entropy(self.search)(self.model, context)
        decode = self.vocabulary.decode
        texts = [[decode(caption.tokens) for caption in best.every] for best in captions]
        scores.update(batch.index, texts)
        return captions

    def _log_scores(self, split: str, scores: CaptionScores) -> None:
        """Score the captions of all processes."""
        self.latest[split] = scores.compute()
        for name, value in self.latest[split].corpus.items():
            column = f"{split}/{name}"
            if math.isfinite(value):
                self.log(column, value)
            elif column in self._monitored:  # an old value of it would choose the checkpoint
                raise CaptioningError(
                    f"{column} is monitored and could not be computed: give the command again with "
                    "resume=true, which continues just before this validation"
                )
        scores.reset()

    def configure_optimizers(self) -> Any:
        # Lightning refuses to clip for a fused optimiser in every mixed precision, though only the
        # loss scale of 16-mixed is an obstacle
        if self.trainer.precision == "bf16-mixed":
            self._optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]
        # infinite for a training without end
        steps = min(self.trainer.estimated_stepping_batches, sys.maxsize)
        schedule = self._schedule(self._optimizer, int(steps))
        # by itself it would reduce the rate on a plateau of epochs or of steps, not of validations
        own = {"scheduler": schedule, "interval": "step", "reduce_on_plateau": False}
        return [self._optimizer], [own]

    def lr_scheduler_step(self, scheduler: LRScheduler, metric: Any) -> None:
        if not isinstance(scheduler, ReduceLROnPlateau):
            scheduler.step()

    def on_validation_end(self) -> None:
        trainer: Any = self.trainer
        in_training = trainer.state.fn == "fit" and not trainer.sanity_checking
        schedule = self.lr_schedulers()
        if in_training and isinstance(schedule, ReduceLROnPlateau):
            schedule.step(trainer.callback_metrics[trainer.checkpoint_callback.monitor])

    def on_save_checkpoint(self, checkpoint: Content) -> None:
        """Add configuration and vocabulary, and the quantiles if these weights were validated."""
        quantiles = self.quantiles if self._validated == self.global_step else ()
        words = self.vocabulary.saved
        checkpoint["captioning"] = captioner_section(self.stored.plain, words, quantiles)

    def on_load_checkpoint(self, checkpoint: Content) -> None:
        """Refuse to resume with other ids, as after a `tokenizer.json` has changed."""
        if checkpoint["captioning"]["words"] != self.vocabulary.saved:
            raise CaptioningError(
                f"the checkpoint has other {self.vocabulary.unit} than data.vocabulary gives now"
            )
