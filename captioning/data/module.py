"""The data module of all models."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import cast

from lightning import LightningDataModule

from captioning.data.batch import Batch
from captioning.data.caption_words import CaptionWords
from captioning.data.dataset import CaptionDataset, Inputs
from captioning.data.example import Example, Splits, reference_words
from captioning.data.loader import BucketSampler, Loader
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError


def check_lengths(examples: Sequence[Example], max_words: int) -> None:
    """Refuse training captions that all have more than `max_words` words."""
    lengths = CaptionWords.of(reference_words(examples)).lengths
    if (lengths > max_words).all():
        shortest = f", the shortest has {lengths.min()}" if len(lengths) else ""
        raise CaptioningError(
            f"no training image has a caption of at most data.max_words={max_words} "
            f"words{shortest}; raise it"
        )


class CaptionData(LightningDataModule):
    """Batches of `train`, `val` and `test`.

    Args:
        inputs: features or pixels of the photographs of each split.
        batch_size: images per process and training step; `eval_batch_size` for validation and test.
        captions_per_image: N in training.
        max_words: longest training caption, in words.
        max_pieces: likewise, in pieces of subwords; None: of any number.
        num_workers: worker processes of each loader; 0 loads in the training process.
        seed: seed of the order of images and the choice of captions.
        views: further views of the training images (see `CaptionDataset`).
    """

    def __init__(
        self,
        splits: Splits,
        inputs: Mapping[str, Inputs],
        vocabulary: Vocabulary,
        *,
        batch_size: int = 16,
        eval_batch_size: int = 32,
        captions_per_image: int = 5,
        max_words: int = 14,
        max_pieces: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
        views: Sequence[Inputs] = (),
    ):
        super().__init__()
        self.splits, self.vocabulary = splits, vocabulary
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        check_lengths(splits["train"], max_words)
        self.num_workers, self.seed = num_workers, seed
        self._resumed = {"epoch": 0, "done": 0}
        self.datasets = {
            name: CaptionDataset(
                examples,
                inputs[name],
                vocabulary,
                max_words=max_words,
                max_pieces=max_pieces,
                captions_per_image=captions_per_image,
                drop_uncaptioned=name == "train",
                seed=seed,
                views=views if name == "train" else (),
            )
            for name, examples in splits.items()
        }
        if not len(self.datasets["train"]):
            raise CaptioningError(
                f"no training image has a caption of at most data.max_pieces={max_pieces} pieces; "
                "raise it"
            )

    @cached_property
    def unknown(self) -> float:
        """The share of unknown words among those of the training captions, 0 to 1."""
        return self.vocabulary.unknown(reference_words(self.splits["train"]))

    @property
    def described(self) -> str:
        """One line about images and words."""
        sizes = ", ".join(f"{name} {len(examples)}" for name, examples in self.splits.items())
        if dropped := self.datasets["train"].dropped:
            sizes += f" ({dropped} training images left out: every caption is too long)"
        count = f"{len(self.vocabulary)}{' pieces' if self.vocabulary.pieces else ''}"
        unknown = f"{100 * self.unknown:.1f} % of words unknown"
        return f"images: {sizes}; vocabulary: {count} ({unknown})"

    def state_dict(self) -> dict[str, int]:
        """The epoch, and the number of its batches that are done."""
        assert self.trainer is not None
        done = self.trainer.fit_loop.epoch_loop.batch_progress.current.completed
        return {"epoch": self.trainer.current_epoch, "done": done}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._resumed = state_dict

    def train_dataloader(self) -> Loader[Batch]:
        """Shuffled, bucketed batches; in a resumed run, the rest of the epoch first."""
        loader = self._loader("train", self.batch_size)
        cast(BucketSampler, loader.sampler).resume(**self._resumed)
        return loader

    def val_dataloader(self) -> Loader[Batch]:
        return self._loader("val", self.eval_batch_size)

    def test_dataloader(self) -> Loader[Batch]:
        return self._loader("test", self.eval_batch_size)

    def _loader(self, split: str, batch_size: int) -> Loader[Batch]:
        dataset, trainer = self.datasets[split], self.trainer
        rank, world_size = (trainer.global_rank, trainer.world_size) if trainer else (0, 1)
        if len(dataset) < world_size:
            raise CaptioningError(
                f"{world_size} processes cannot share the {len(dataset)} images of {split}: use "
                "fewer (trainer.devices)"
            )
        return Loader(
            dataset.__getitem__,
            sampler=BucketSampler(
                dataset.lengths(), batch_size, split == "train", self.seed, rank, world_size
            ),
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            pin_memory=trainer is not None and trainer.strategy.root_device.type == "cuda",
        )
