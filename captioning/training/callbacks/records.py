"""Records of a test in the run folder: captions, scores, attention panels and maps."""

import re
from collections import ChainMap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import lightning as L
import torch
from annotated_types import Ge

from captioning.config.types import validated
from captioning.data.batch import Batch
from captioning.data.example import Example, photographs, reference_texts
from captioning.decoding import Caption
from captioning.decoding.maps import all_maps, caption_maps
from captioning.machine import gathered
from captioning.metrics import Scores
from captioning.report.panels import LONGEST, save_panel
from captioning.runs.attention_file import FILE, KeptCaption, write
from captioning.runs.results import device_name, software, write_captions, write_scores
from captioning.tokens import EOS
from captioning.training.callbacks.statistics import CaptionCallback
from captioning.training.callbacks.timing import Stopwatch
from captioning.training.module import CaptioningModule

Images = Annotated[int, Ge(0)]


class Results(CaptionCallback):
    """Write the captions of the test before any scorer starts, then again with their scores."""

    splits = ("test",)

    @validated
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def end(self, trainer: L.Trainer, module: CaptioningModule, split: str) -> None:
        self._captions = module.test_scores.captions()
        self._root = module.config.get("data", {}).get("reader", {}).get("root")
        self._write(trainer)

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, CaptioningModule)
        scores = pl_module.latest["test"]
        self._write(trainer, scores)
        # scores that other callbacks have logged, such as pointing
        logged = {
            name.removeprefix("test/"): float(value)
            for name, value in trainer.callback_metrics.items()
            if name.startswith("test/") and name.removeprefix("test/") not in scores.corpus
        }
        examples = trainer.datamodule.examples("test")  # type: ignore[attr-defined]
        source = provenance(trainer) | {"images_tested": len(self._captions), "images_of_split": len(examples)}
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


def provenance(trainer: L.Trainer) -> dict[str, Any]:
    """The origin of a tested run, its decoding and its times."""
    stopwatch = next((c for c in trainer.callbacks if isinstance(c, Stopwatch)), None)  # type: ignore[attr-defined]
    module = trainer.lightning_module
    assert isinstance(module, CaptioningModule)
    return origin(trainer) | {
        "decoding": module.config["decoding"],
        **module.objective.origin(),
        "seconds_trained": stopwatch and stopwatch.trained,
        "seconds_to_best": stopwatch and stopwatch.to_best,
    }


def origin(trainer: L.Trainer) -> dict[str, Any]:
    """The provenance known before training: commit, versions, data digest, tokenizer, sizes and device."""
    module = trainer.lightning_module
    return software() | {
        "data_digest": trainer.datamodule.digest(),  # type: ignore[attr-defined]
        "parameters": {
            "trainable": sum(p.numel() for p in module.parameters() if p.requires_grad),
            "frozen": sum(p.numel() for p in module.parameters() if not p.requires_grad),
        },
        "device": device_name(trainer.strategy.root_device),
        "precision": trainer.precision,
        "processes": trainer.world_size,
    }


class FirstCaptions(CaptionCallback):
    """Base of callbacks that `keep` the captions of a split's first images, from all processes."""

    splits = ("test",)

    def __init__(self, images: int) -> None:
        self.images = images

    def keep(self, trainer: L.Trainer, module: CaptioningModule, captions: dict[int, Caption]) -> None:
        """Use the captions, by position in the split and in its order; called on rank 0."""
        raise NotImplementedError

    def begin(self, trainer: L.Trainer, module: CaptioningModule, split: str) -> None:
        self._captions: dict[int, Caption] = {}

    def add(self, trainer: L.Trainer, module: CaptioningModule, batch: Batch, captions: Sequence[Caption]) -> None:
        for position, caption in zip(batch.index.tolist(), captions, strict=True):
            if position < self.images:
                self._captions[position] = caption

    def end(self, trainer: L.Trainer, module: CaptioningModule, split: str) -> None:
        captions = dict(sorted(ChainMap(*gathered(self._captions)).items()))
        if trainer.is_global_zero:
            self.keep(trainer, module, captions)


class AttentionPanels(FirstCaptions):
    """Save one attention panel per image in `folder`, named by its id; `maps=all` has every layer's and head's map."""

    @validated
    def __init__(self, folder: str | Path, images: Images, maps: Literal["mean", "all"] = "mean") -> None:
        super().__init__(images)
        self.folder, self.maps = Path(folder), maps
        self.drawn: dict[int | str, Path] = {}  # panels of the last test by image id, on rank 0

    def keep(self, trainer: L.Trainer, module: CaptioningModule, captions: dict[int, Caption]) -> None:
        self.drawn = {}
        examples = trainer.datamodule.examples("test")  # type: ignore[attr-defined]
        for position, caption in captions.items() if module.backbone.located else ():
            if caption.attention is None:
                continue
            example = examples[position]
            self.folder.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^\w.-]", "_", Path(str(example.image_id)).stem)
            self.drawn[example.image_id] = self.folder / f"{name}.png"
            draw(self.drawn[example.image_id], module, example, caption, every_map=self.maps == "all")


def draw(path: Path, module: CaptioningModule, example: Example, caption: Caption, every_map: bool = False) -> None:
    """Save the panel of a captioned photograph as `path` and as PDF; without attention, the photograph alone.

    The backbone must be `located`.
    """
    backbone = module.backbone
    tokens, maps = [], torch.zeros(0, *backbone.grid)
    if caption.attention is not None:
        tokens = [token for token in caption.tokens if token != EOS]
        maps = caption.attention[: len(tokens)].unflatten(1, backbone.grid)
    by_name = {}
    if tokens and every_map:
        image = backbone.transform.read(example.path)[None].to(module.device)
        by_name = caption_maps(module.model, backbone.context(backbone(image)), tokens)
    save_panel(
        path,
        backbone.transform.whole(example.path, LONGEST) / 255,
        module.vocabulary.each_word(tokens),
        by_name or maps,
        title=module.vocabulary.decode(caption.tokens),
        references=reference_texts([example])[0],
        frame=backbone.transform.frame(example.path),
    )


class KeepAttention(FirstCaptions):
    """Write every map of the test split's first captions to `attention.npz`, if the model has attention."""

    @validated
    def __init__(self, folder: str | Path, images: Images) -> None:
        super().__init__(images)
        self.folder = Path(folder)

    @torch.no_grad()
    def keep(self, trainer: L.Trainer, module: CaptioningModule, captions: dict[int, Caption]) -> None:
        dataset = trainer.datamodule.datasets["test"]  # type: ignore[attr-defined]
        kept = []
        for position, caption in captions.items() if module.backbone.located else ():
            inputs = dataset.inputs.rows([position]).to(module.device)
            maps = all_maps(module.model, module.backbone.context_of(inputs, dataset.inputs.pixels), caption)
            if maps:
                words = tuple(module.vocabulary.each_word(caption.tokens))
                kept.append(KeptCaption(dataset.examples[position].image_id, words, maps))
        if kept:
            write(self.folder / FILE, kept)
