"""Trains a captioner and tests it: `python -m captioning.run model=spatial_transformer`.

The one place that composes the parts. Everything that can be wrong is found before features are computed, and those
before training starts.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import lightning as L
import torch
from hydra.utils import instantiate
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig, OmegaConf
from torch import nn

from captioning.backbones import Backbone
from captioning.config.check import check, data_settings
from captioning.config.command import command, start
from captioning.config.registry import CONF
from captioning.config.searches import search_settings
from captioning.data.example import Example, Splits, reference_texts
from captioning.data.inputs import Inputs, Photographs
from captioning.data.mirror import Mirror
from captioning.data.module import CaptionData
from captioning.data.photographs import readable
from captioning.data.readers.reading import read
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError
from captioning.features.build import build_features
from captioning.features.cache import FeatureCache
from captioning.machine import is_first
from captioning.metrics import Scorer
from captioning.report.summary import print_summary
from captioning.runs.earlier import earlier_run, resume_point
from captioning.runs.folder import lock, new_folder, run_folder
from captioning.runs.record import begin, digests, end, result
from captioning.training.module import CaptioningModule
from captioning.training.selection import select_width

say = rank_zero_only(logging.getLogger(__name__).info)


@command(CONF / "config.yaml")
def main(config: DictConfig) -> float | None:
    """Trains and tests as `config` says; returns the best validation score, for sweeps."""
    check(config)
    L.seed_everything(config.seed, workers=True, verbose=False)

    backbone: Backbone = instantiate(config.backbone)
    splits = build_splits(config, backbone)
    made_of = digests(config, splits, backbone)
    earlier = earlier_run(config, made_of)
    if earlier and (ended := result(earlier)):
        return skip(config, earlier, ended)
    vocabulary = Vocabulary.from_captions(
        (reference.words for example in splits["train"] for reference in example.references), **config.data.vocabulary
    )
    module = build_module(config, splits, vocabulary, backbone)
    inputs = build_inputs(config, splits, backbone)
    mirror = build_mirror(config, splits, backbone)
    data = CaptionData(splits, inputs, vocabulary, mirror=mirror, **data_settings(config))
    say("%s", describe(splits, data, vocabulary, module))

    folder = earlier or run_folder(config)
    if earlier is None and is_first():
        folder = new_folder(config, folder)
        begin(folder, made_of)
    OmegaConf.update(config, "folder", str(folder))
    with lock(folder):
        if earlier and (ended := result(earlier)):  # by another process, since
            return skip(config, earlier, ended)
        point = resume_point(folder, module.state_dict()) if earlier else None
        say("run folder: %s%s", folder, f"\ngoing on from {point}" if point else "")
        ended = train(config, module, data, point)
        if is_first():
            end(folder, ended)
            show(config, folder)
    return ended["best"]


def train(config: DictConfig, module: CaptioningModule, data: CaptionData, point: Path | None) -> dict[str, Any]:
    """Trains, from `point` on where there is one, chooses the width of the beam, tests.

    Returns:
        `best`, the validation score of what was tested, or None without validation; `widths`, that of each width tried.
    """
    trainer: L.Trainer = instantiate(
        config.trainer, logger=parts(config.logger), callbacks=parts(config.callbacks), default_root_dir=config.folder
    )
    trainer.fit(module, data, ckpt_path=point)
    score = trainer.checkpoint_callback.best_model_score  # type: ignore[union-attr]
    ended: dict[str, Any] = {"best": None if score is None else float(score)}
    widths = config.decoding.get("select")
    if widths or config.test:
        load_best(module, trainer)
    if widths:
        scores = select_width(trainer, module, data, widths)
        width = module.config["decoding"]["width"]
        tried = ", ".join(f"{each}: {value:.1f}" for each, value in scores.items())
        say("beam of width %d, chosen by %s (%s)", width, config.callbacks.checkpoint.monitor, tried)
        ended = {"best": scores[width], "widths": scores}
    if config.test:
        trainer.test(module, data, verbose=False)
    return ended


def skip(config: DictConfig, folder: Path, ended: dict[str, Any]) -> float | None:
    """Tells of a run that is not run again."""
    say("this run is finished: %s; a new one begins with resume=false", folder)
    show(config, folder)
    return ended["best"]


def show(config: DictConfig, folder: Path) -> None:
    """Prints what a tested run has come to."""
    if config.test:
        rank_zero_only(print_summary)(folder)


def build_module(config: DictConfig, splits: Splits, vocabulary: Vocabulary, backbone: Backbone) -> CaptioningModule:
    """Model, objective, search and scorers, meeting in the Lightning module."""
    decoding: Any = OmegaConf.to_container(config.decoding, resolve=True)
    model = instantiate(config.model, vocab_size=len(vocabulary), d_context=backbone.dim, grid=backbone.grid)
    return CaptioningModule(
        backbone=backbone,
        model=model,
        objective=instantiate(config.objective),
        search=instantiate(search_settings(decoding, vocabulary)),
        scorers={
            split: Scorer(reference_texts(splits[split]), config.metrics[split], config.metrics.timeout)
            for split in ("val", "test")
        },
        vocabulary=vocabulary,
        optimizer=instantiate(config.optimizer),
        schedule=instantiate(config.schedule),
        config=OmegaConf.to_container(config, resolve=True),  # type: ignore[arg-type]
    )


def build_splits(config: DictConfig, backbone: Backbone) -> Splits:
    """The examples, without those whose photographs cannot be read where `data.skip_broken` says so.

    Features are computed from every photograph before training anyway; where images flow, they are tried here.
    """
    splits = read(instantiate(config.data.reader))
    if not (backbone.trainable or config.data.skip_broken):
        return splits
    return readable(splits, backbone.transform, Path(config.cache) / "photographs", config.data.skip_broken)


def build_inputs(config: DictConfig, splits: Splits, backbone: Backbone) -> dict[str, Inputs]:
    """Photographs for a trainable backbone; for a frozen one its features, brought to unit scale, on disk."""
    inputs = {name: photographs(config, examples, backbone, name) for name, examples in splits.items()}
    if isinstance(inputs["train"], FeatureCache):
        backbone.scale.fill_(inputs["train"].scale())
    return inputs


def build_mirror(config: DictConfig, splits: Splits, backbone: Backbone) -> Mirror | None:
    """The training split mirrored, where `data.mirror` asks for it."""
    if not config.data.mirror:
        return None
    view = photographs(config, splits["train"], backbone.mirrored(), "train, mirrored")
    return Mirror(config.data.mirror, view, config.seed)


def photographs(config: DictConfig, examples: Sequence[Example], backbone: Backbone, name: str) -> Inputs:
    """What stands for the photographs of a split, as the backbone needs them."""
    paths = [example.path for example in examples]
    if backbone.trainable:
        return Photographs(paths, backbone.transform)
    if torch.cuda.is_available():
        backbone.cuda()
    return build_features(backbone, paths, Path(config.cache) / "features", progress=f"features of {name}")


def load_best(module: CaptioningModule, trainer: L.Trainer) -> None:
    """The weights of the best checkpoint, and only these.

    `trainer.test(ckpt_path="best")` would also restore callbacks: the stopwatch to the time of that checkpoint, and in
    place of averaged weights those from which training goes on.
    """
    path = trainer.strategy.broadcast(trainer.checkpoint_callback.best_model_path)  # type: ignore[union-attr]
    if not path:
        raise CaptioningError("no validation took place, so there is no best checkpoint to test: set test=false")
    module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True)["state_dict"])


def parts(group: DictConfig | None) -> list[Any]:
    """The objects of a group of named parts; those set to null are left out."""
    return [instantiate(part) for part in (group or {}).values() if part is not None]


def describe(splits: Splits, data: CaptionData, vocabulary: Vocabulary, module: CaptioningModule) -> str:
    """One line on data, one on size."""
    sizes = ", ".join(f"{name} {len(examples)}" for name, examples in splits.items())
    dropped = data.datasets["train"].dropped
    left_out = f" ({dropped} training images left out: every caption is too long)" if dropped else ""
    count = sum(p.numel() for p in cast(nn.Module, module.model).parameters())
    backbone = sum(p.numel() for p in module.backbone.parameters())
    state = "trainable" if module.backbone.trainable else "frozen"
    return (
        f"images: {sizes}{left_out}; vocabulary: {len(vocabulary)}\n"
        f"parameters: model {count:,}, backbone {backbone:,} ({state})"
    )


if __name__ == "__main__":
    start(main)
