"""Records of a test in the run folder: captions, scores, attention panels and maps."""

import re
from pathlib import Path
from typing import Any, Literal

import torch
from lightning import Callback, Trainer

from captioning.config.types import NotNegativeInt, UserPath, validated
from captioning.data.example import image_names, reference_texts
from captioning.data.readers.ids import file_name
from captioning.decoding import GeneratedCaption
from captioning.decoding.maps import all_maps
from captioning.metrics import Scores
from captioning.report.alignment import save_alignment
from captioning.report.panels import LONGEST, save_panel
from captioning.runs.evaluation.attention_file import FILE, AttentionRecord, write
from captioning.runs.evaluation.captions import FILE as CAPTIONS
from captioning.runs.evaluation.captions import write_captions, write_scores
from captioning.runs.folders.record import Record
from captioning.runs.provenance import device_name, software
from captioning.training.callbacks.statistics import CaptionCallback, Captions, DecodedSplit
from captioning.training.callbacks.timing import Stopwatch
from captioning.training.module import CaptioningModule


class Results(Callback):
    """Write the test captions before any scorer starts, then again with scores."""

    @validated
    def __init__(self, folder: UserPath):
        self.folder = folder

    def on_test_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        self._captions = pl_module.test_scores.captions()
        split = trainer.datamodule.splits["test"]  # type: ignore[attr-defined]
        self._examples = [split[position] for position in self._captions]
        self._groups = [example.group for example in self._examples]
        self._write(trainer, pl_module)

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        scores = pl_module.latest["test"]
        self._write(trainer, pl_module, scores)
        # Scores that other callbacks have logged too, such as pointing, are in single precision.
        logged = {
            name.removeprefix("test/"): float(value)
            for name, value in trainer.callback_metrics.items()
            if name.startswith("test/")
        }
        stopwatch = next((c for c in trainer.callbacks if isinstance(c, Stopwatch)), None)  # type: ignore[attr-defined]
        source = provenance(trainer) | {
            "decoding": pl_module.stored.plain["decoding"],
            **pl_module.objective.provenance(),
            # The score that chose the tested weights.
            "monitor": getattr(trainer.checkpoint_callback, "monitor", None),
            "seconds_trained": stopwatch and stopwatch.trained,
            "seconds_to_best": stopwatch and stopwatch.to_best,
            "signatures": pl_module.test_scores.scorer.signatures,
            "images_tested": len(self._captions),
            "images_of_split": len(trainer.datamodule.splits["test"]),  # type: ignore[attr-defined]
        }
        if trainer.is_global_zero:
            # Corpus scores stand first, in their own order, and are as exact as they were computed.
            every = scores.corpus | logged | scores.corpus
            every |= pl_module.test_scores.scorer.chance(self._captions)
            write_scores(self.folder, every, source, groups=scores.by_group(self._groups))

    def _write(
        self, trainer: Trainer, module: CaptioningModule, scores: Scores | None = None
    ) -> None:
        if trainer.is_global_zero:
            examples = self._examples
            write_captions(
                self.folder / CAPTIONS,
                (example.image_id for example in examples),
                self._captions.values(),
                reference_texts(examples),
                image_names(examples, module.stored.plain["data"]["reader"].get("root")),
                self._groups,
                scores,
            )


def provenance(trainer: Trainer) -> dict[str, Any]:
    """The provenance known before training: commit, own modules, versions, data digest, tokenizer,
    sizes and device.
    """
    module: Any = trainer.lightning_module
    sizes = {True: 0, False: 0}
    for parameter in module.parameters():
        sizes[parameter.requires_grad] += parameter.numel()
    record = Record.of(Path(trainer.default_root_dir))
    return software(module.vocabulary.language) | {
        **({"source": record.source} if record.source else {}),
        "data_digest": record.digests["data"],
        "parameters": {"trainable": sizes[True], "frozen": sizes[False]},
        "device": device_name(trainer.strategy.root_device),
        "precision": trainer.precision,
        "processes": trainer.world_size,
    }


class AttentionPanels(CaptionCallback):
    """Save one attention panel per image in `folder`; `maps=all` shows every layer and head."""

    splits = ("test",)

    @validated
    def __init__(
        self, folder: UserPath, images: NotNegativeInt, maps: Literal["mean", "all"] = "mean"
    ):
        self.folder, self.images, self.maps = folder, images, maps
        self.drawn: dict[int | str, Path] = {}  # panels of the last test by image id, on rank 0

    def finish(self, split: DecodedSplit, captions: Captions) -> None:
        self.drawn, taken = {}, set[str]()
        for position, caption in captions.items() if split.trainer.is_global_zero else ():
            if caption.attention is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                image = split.dataset.examples[position].image_id
                name = file_name(re.sub(r"[^\w.-]", "_", str(image)), taken)
                self.drawn[image] = self.folder / f"{name}.png"
                draw_panel(self.drawn[image], split, position, caption, self.maps == "all")


def draw_panel(
    path: Path,
    split: DecodedSplit,
    position: int,
    caption: GeneratedCaption,
    every_map: bool = False,
) -> None:
    """Save a caption's maps as `path` and as PDF, on its photograph, or as shades where vectors
    have no places in one.
    """
    backbone, example = split.module.backbone, split.dataset.examples[position]
    record = kept_caption(split, position, caption)
    maps = {name: m for name, m in record.maps.items() if every_map or name == "mean"}
    title = split.module.vocabulary.decode(caption.tokens)
    texts: dict[str, Any] = {"title": title, "references": reference_texts([example])[0]}
    if not backbone.located:
        shades = {name: m[:, 0] for name, m in maps.items()}
        save_alignment(path, record.words, shades, record.labels, **texts)
        return
    pictures = {name: torch.from_numpy(m) for name, m in maps.items()}
    mean = pictures.get("mean", torch.zeros(0, *backbone.grid))
    image, frame = backbone.picture(example.paths, LONGEST)
    words = record.words if maps else ()
    save_panel(path, image, words, pictures if every_map else mean, frame=frame, **texts)


@torch.no_grad()
def kept_caption(split: DecodedSplit, position: int, caption: GeneratedCaption) -> AttentionRecord:
    """A caption with all its maps; none without attention."""
    module, dataset = split.module, split.dataset
    inputs, example = dataset.inputs.rows([position]).to(module.device), dataset.examples[position]
    context = module.backbone.context_of(inputs)
    numbers = module.vocabulary.word_numbers(caption.tokens)
    maps = all_maps(module.model, context, caption, numbers)
    labels = example.source[: maps["mean"].shape[-1]] if maps else ()
    words = tuple(module.vocabulary.each_word(caption.tokens))
    return AttentionRecord(example.image_id, words, maps, labels)


class AttentionLogger(CaptionCallback):
    """Write all maps of the first test captions to `attention.npz`, if the model has attention."""

    splits = ("test",)

    @validated
    def __init__(self, folder: UserPath, images: NotNegativeInt):
        self.folder, self.images = folder, images

    def finish(self, split: DecodedSplit, captions: Captions) -> None:
        first = captions.items() if split.trainer.is_global_zero else ()
        records = [kept_caption(split, *pair) for pair in first]
        if records and records[0].maps:
            write(self.folder / FILE, records)
