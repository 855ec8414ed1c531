"""Records of a test in the run folder: captions, scores, attention panels and maps."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import lightning as L
import torch
from annotated_types import Ge

from captioning.config.types import validated
from captioning.data.dataset import CaptionDataset
from captioning.data.example import Example, photographs, reference_texts
from captioning.decoding import GeneratedCaption
from captioning.decoding.maps import all_maps, caption_maps
from captioning.metrics import Scores
from captioning.report.alignment import save_alignment
from captioning.report.panels import LONGEST, save_panel
from captioning.runs.attention_file import FILE, AttentionRecord, write
from captioning.runs.results import device_name, software, write_captions, write_scores
from captioning.runs.run import Record
from captioning.tokens import EOS
from captioning.training.callbacks.statistics import CaptionCallback
from captioning.training.callbacks.timing import Stopwatch
from captioning.training.module import CaptioningModule

Images = Annotated[int, Ge(0)]


class Results(L.Callback):
    """Write the test captions before any scorer starts, then again with scores."""

    @validated
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._captions = pl_module.test_scores.captions()
        self._write(trainer, pl_module)

    def on_test_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        scores = pl_module.latest["test"]
        self._write(trainer, pl_module, scores)
        # includes scores logged by other callbacks, such as pointing, rounded to single precision
        metrics = {
            name: float(value)
            for name, value in trainer.callback_metrics.items()
            if name.startswith("test/")
        }
        logged = {name.removeprefix("test/"): value for name, value in metrics.items()}
        stopwatch = next((c for c in trainer.callbacks if isinstance(c, Stopwatch)), None)  # type: ignore[attr-defined]
        source = provenance(trainer) | {
            "decoding": pl_module.config["decoding"],
            **pl_module.objective.provenance(),
            "monitor": getattr(
                trainer.checkpoint_callback, "monitor", None
            ),  # which chose the tested weights
            "seconds_trained": stopwatch and stopwatch.trained,
            "seconds_to_best": stopwatch and stopwatch.to_best,
            "signatures": pl_module.test_scores.scorer.signatures,
            "images_tested": len(self._captions),
            "images_of_split": len(trainer.datamodule.examples("test")),  # type: ignore[attr-defined]
        }
        if trainer.is_global_zero:
            write_scores(
                self.folder / "scores.json", scores.corpus | logged | scores.corpus, source
            )

    def _write(
        self, trainer: L.Trainer, module: CaptioningModule, scores: Scores | None = None
    ) -> None:
        if trainer.is_global_zero:
            split = trainer.datamodule.examples("test")  # type: ignore[attr-defined]
            examples = [split[position] for position in self._captions]
            write_captions(
                self.folder / "captions.jsonl",
                [example.image_id for example in examples],
                list(self._captions.values()),
                reference_texts(examples),
                scores,
                photographs(examples, module.config.get("data", {}).get("reader", {}).get("root")),
            )


def provenance(trainer: L.Trainer) -> dict[str, Any]:
    """The provenance known before training: commit, own modules, versions, data digest, tokenizer,
    sizes and device.
    """
    sizes = {True: 0, False: 0}
    module: Any = trainer.lightning_module
    for parameter in module.parameters():
        sizes[parameter.requires_grad] += parameter.numel()
    own = Record.of(Path(trainer.default_root_dir)).source
    return software(module.vocabulary.language) | {
        **({"source": own} if own else {}),
        "data_digest": trainer.datamodule.digest(),  # type: ignore[attr-defined]
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
        self, folder: str | Path, images: Images, maps: Literal["mean", "all"] = "mean"
    ) -> None:
        self.folder, self.images, self.maps = Path(folder), images, maps
        self.drawn: dict[int | str, Path] = {}  # panels of the last test by image id, on rank 0

    def finish(
        self,
        trainer: L.Trainer,
        module: CaptioningModule,
        split: str,
        kept: dict[int, GeneratedCaption],
    ) -> None:
        self.drawn = {}
        dataset = trainer.datamodule.datasets["test"]  # type: ignore[attr-defined]
        for position, caption in kept.items() if trainer.is_global_zero else ():
            if caption.attention is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                example = dataset.examples[position]
                name = re.sub(r"[^\w.-]", "_", Path(str(example.image_id)).stem)
                path = self.drawn[example.image_id] = self.folder / f"{name}.png"
                if module.backbone.located:
                    draw(path, module, example, caption, every_map=self.maps == "all")
                else:
                    self._draw_alignment(path, module, dataset, position, caption)

    def _draw_alignment(
        self,
        path: Path,
        module: CaptioningModule,
        dataset: CaptionDataset,
        position: int,
        caption: GeneratedCaption,
    ) -> None:
        record = kept_caption(module, dataset, position, caption)
        assert record is not None
        maps = {
            name: weights[:, 0]
            for name, weights in record.maps.items()
            if self.maps == "all" or name == "mean"
        }
        title, texts = (
            module.vocabulary.decode(caption.tokens),
            reference_texts([dataset.examples[position]])[0],
        )
        save_alignment(path, record.words, maps, record.labels, title, texts)


def draw(
    path: Path,
    module: CaptioningModule,
    example: Example,
    caption: GeneratedCaption,
    every_map: bool = False,
) -> None:
    """Save the panel of a caption as `path` and as PDF; without attention, only the photograph.

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


@torch.no_grad()
def kept_caption(
    module: CaptioningModule, dataset: CaptionDataset, position: int, caption: GeneratedCaption
) -> AttentionRecord | None:
    """A caption with all its maps; None without attention."""
    inputs = dataset.inputs.rows([position]).to(module.device)
    maps = all_maps(
        module.model, module.backbone.context_of(inputs, dataset.inputs.pixels), caption
    )
    if not maps:
        return None
    words, example = tuple(module.vocabulary.each_word(caption.tokens)), dataset.examples[position]
    return AttentionRecord(example.image_id, words, maps, example.source[: maps["mean"].shape[-1]])


class AttentionLogger(CaptionCallback):
    """Write all maps of the first test captions to `attention.npz`, if the model has attention."""

    splits = ("test",)

    @validated
    def __init__(self, folder: str | Path, images: Images) -> None:
        self.folder, self.images = Path(folder), images

    def finish(
        self,
        trainer: L.Trainer,
        module: CaptioningModule,
        split: str,
        kept: dict[int, GeneratedCaption],
    ) -> None:
        dataset = trainer.datamodule.datasets["test"]  # type: ignore[attr-defined]
        captions = kept.items() if trainer.is_global_zero else ()
        records = [
            kept_caption(module, dataset, position, caption) for position, caption in captions
        ]
        if present := [record for record in records if record is not None]:
            write(self.folder / FILE, present)
