"""The last step before training: the images of a run, or their features, with its captions."""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

from captioning.config.schemas.run import RunSettings
from captioning.data.columns import FirstPaths
from captioning.data.dataset import Inputs
from captioning.data.example import Example, Splits
from captioning.data.module import CaptionData
from captioning.data.views import RandomChange
from captioning.features.build import FeatureStore, MissingFeatures, check_space
from captioning.metrics.table import unsupported_metrics
from captioning.tokens import FROM_CHECKPOINT
from captioning.training.module import CaptioningModule
from captioning.training.setup import Parts

MANY_UNKNOWN = 0.15  # (D) more show that the words are not what repeats in these captions
IF_MANY = (
    "lower data.vocabulary.min_count, or set data.vocabulary.subwords=bpe; for a language "
    "without blanks set data.language=zh data.tokens=characters"
)
OF_CHECKPOINT = "the words are those that the checkpoint of init_from was trained with"

log = logging.getLogger(__name__)


def open_inputs(
    settings: RunSettings,
    parts: Parts,
    splits: Splits,
    module: CaptioningModule,
    whole: Sequence[Example],
) -> CaptionData:
    """The data module with what the backbone needs: images, or cached features at unit scale.

    `whole` is the training split that training may have a subset of.
    """
    splits = _used(settings, splits)
    backbone, data, train = module.backbone, settings.data, splits["train"]
    if torch.cuda.is_available():
        backbone.cuda()  # for features; the trainer moves it again
    changes: RandomChange = parts["data.view"].build()
    viewers = [backbone.with_transform(changes.view(k)) for k in range(1, data.views)]

    def open_from(store: FeatureStore) -> tuple[dict[str, Inputs], list[Inputs]]:
        inputs = {name: backbone.open_inputs(split, store, name) for name, split in splits.items()}
        views = [
            viewer.open_inputs(train, store, f"train, view {k} of {data.views}")
            for k, viewer in enumerate(viewers, 2)
        ]
        return inputs, views

    cache, paths = Path(settings.cache), FirstPaths(whole)
    store = FeatureStore(cache, paths, in_steps=not data.cache_features)
    images = sum(map(len, splits.values()))
    size = backbone.cached_bytes(images + len(viewers) * len(train))
    if size and data.cache_features:
        viewed = f", {len(train):,} of them in {data.views} views" if viewers else ""
        store.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(store.folder).free
        log.info(
            "features: %s images%s, %.2f GB in %s, where %.2f GB are free",
            f"{images:,}",
            viewed,
            size / 1e9,
            store.folder,
            free / 1e9,
        )
        if size > free:
            missing = MissingFeatures(cache, paths)
            open_from(missing)
            check_space(missing.size, store.folder)
    inputs, further = open_from(store)
    if settings.init_from is None:  # else the model knows them as they were scaled
        inputs["train"].fit_scale(backbone)
    opened = CaptionData(
        splits,
        inputs,
        module.vocabulary,
        batch_size=data.batch_size,
        eval_batch_size=data.eval_batch_size,
        captions_per_image=data.captions_per_image,
        max_words=data.max_words,
        max_pieces=data.max_pieces,
        num_workers=data.num_workers,
        seed=settings.seed,
        views=further,
    )
    _log_sizes(settings, module, opened)
    return opened


def _used(settings: RunSettings, splits: Splits) -> Splits:
    """The splits and images that a run needs, so that no unused features are computed."""
    if not settings.test:
        splits = {name: examples for name, examples in splits.items() if name != "test"}
    if not settings.debug:
        return splits
    two_batches = 2 * max(settings.data.batch_size, settings.data.eval_batch_size)
    return {name: examples[:two_batches] for name, examples in splits.items()}


def _log_sizes(settings: RunSettings, module: CaptioningModule, data: CaptionData) -> None:
    """Log the sizes of data, vocabulary and networks, and what is left out or unknown."""
    log.info("%s", data.described)
    loaded = settings.data.vocabulary == FROM_CHECKPOINT
    if settings.data.train_images:
        words = {"subset": "these images", "all": "the whole split"}
        source = "the checkpoint" if loaded else words[settings.data.vocabulary_images]
        log.info("a subset of the training split; the vocabulary is that of %s", source)
    networks = module.model, module.backbone
    sizes = [f"{sum(p.numel() for p in network.parameters()):,}" for network in networks]
    state = "trainable" if module.backbone.trainable else "frozen"
    log.info("parameters: model %s, backbone %s (%s)", *sizes, state)
    metrics = [*settings.metrics.val, *settings.metrics.test]
    for line in unsupported_metrics(metrics, module.vocabulary.language.code):
        log.info("%s", line)
    if data.unknown > MANY_UNKNOWN:
        text = "%.0f %% of the words of the training captions are unknown: %s"
        log.warning(text, 100 * data.unknown, OF_CHECKPOINT if loaded else IF_MANY)
