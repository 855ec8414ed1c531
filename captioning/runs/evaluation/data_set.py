"""A checkpoint's data set, and the photographs of an evaluation."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioning.backbones.base import Backbone, check_one_image
from captioning.backbones.precomputed import FeatureOnlyBackbone
from captioning.config.explain import explain
from captioning.config.registry import build
from captioning.config.schemas.evaluate import EvaluateSettings
from captioning.config.types import BatchSize, Config, Modules, check_value, given_path
from captioning.data.columns import data_digest
from captioning.data.example import SPLITS, Example, Splits, reference_words
from captioning.data.image_files import read_folder, readable
from captioning.data.readers.options import reading
from captioning.data.readers.reading import Reader, run_reader
from captioning.data.subset import training_subset
from captioning.data.subwords import BPE, build_vocabulary
from captioning.data.vocabulary import Vocabulary
from captioning.data.words import Language
from captioning.errors import CaptioningError, listed, no_setting, quoted
from captioning.metrics.wording import TrainingCaptions
from captioning.runs.provenance import file_record
from captioning.runs.settings import relocate
from captioning.tokens import FROM_CHECKPOINT

TOLD = 1000  # entries left out that are named

log = logging.getLogger(__name__)


def read_splits(
    data: Config,
    backbones: Sequence[Backbone],
    cache: Path,
    modules: Sequence[str],
    needed: Collection[str] = SPLITS,
) -> Splits:
    """Read the data set of a run; scenes may be drawn in `cache` only."""
    with reading(needed=needed):
        reader = build("data.reader", Reader, data["reader"], modules)
    target = getattr(reader, "writes_to", None)
    if target and not target.resolve().is_relative_to(cache.resolve()):
        raise CaptioningError(
            f"the checkpoint would have scenes drawn in {quoted(target)}, outside of "
            f"cache={cache}: set cache to the folder that the run had, or +data.reader.root=FOLDER"
        )
    images = any(backbone.reads_images for backbone in backbones)
    splits = read_logged(reader, images, data, modules, needed, cache)
    # The run left them out too, and its vocabulary is made from the others.
    if data.get("skip_broken") and backbones and backbones[0].reads_images:
        splits = readable(splits, backbones[0].transform, cache / "photographs", skip_broken=True)
    return splits


def read_logged(
    reader: Reader,
    images: bool,
    data: Config,
    modules: Modules = None,
    needed: Collection[str] = SPLITS,
    cache: Path | None = None,
) -> Splits:
    """See `run_reader`; with `data.skip_broken` what cannot be used is left out and logged.

    The first thousand entries are named.
    """
    skipped: list[Exception] = []
    language, listed = Language.of(data, modules), skipped if data.get("skip_broken") else None
    splits = run_reader(reader, images, language, listed, needed, data.get("groups"), cache)
    for error in skipped[:TOLD]:
        log.warning("skipped: %s", explain(error))
    if skipped:
        log.warning("data.skip_broken=true: entries and photographs left out: %d", len(skipped))
    return splits


def check_vocabulary(
    captions: Iterable[Sequence[str]], settings: Any, vocabulary: Vocabulary
) -> None:
    """Refuse a data set whose training captions give another vocabulary than the checkpoint's."""
    if settings == FROM_CHECKPOINT:  # words of another data set, before this one
        return
    check_value("data.vocabulary", settings, Config)
    if settings.get("subwords") not in (None, BPE):  # a file that no caption changes
        return
    given = build_vocabulary(captions, **settings)
    if given != vocabulary:
        raise CaptioningError(
            "this is not the data set that the checkpoint was trained on: its training captions "
            f"give {len(given.words)} {given.unit}, the checkpoint has {len(vocabulary.words)}, "
            f"and {given.shared(vocabulary)} are in both. Set data.root to that one; other "
            "photographs are captioned with images=FOLDER, without data.root"
        )


def data_settings(saved: Config, config: EvaluateSettings) -> Config:
    """Merge the data settings of a run with those of an evaluation; move its folders."""
    data: Config = {"groups": None, **saved["data"]}  # which earlier runs have not
    given = {key: value for key, value in config.data.plain.items() if value is not None}
    given.pop("max_words", None)  # of another data set: the run's own bounds its captions
    if config.another_data_set:  # whose captions are read in the captioner's language
        data = {**given, **{name: data[name] for name in ("language", "tokens") if name in data}}
    else:
        if unknown := [name for name in given if name not in data]:
            raise CaptioningError(no_setting("data", unknown[0], list(data)))
        for old, new in ((data.get("root"), config.data.root), (saved.get("cache"), config.cache)):
            if isinstance(old, str) and new is not None:
                data = relocate(data, old, str(new))
        data = merged(data, given)
    check_value("data.eval_batch_size", data.get("eval_batch_size"), BatchSize)
    return data


def merged(settings: Any, given: Any) -> Any:
    """The settings, with `given` ones in their place, group by group."""
    if not isinstance(settings, dict) or not isinstance(given, dict):
        return given
    return {**settings, **{key: merged(settings.get(key), value) for key, value in given.items()}}


@dataclass(frozen=True)
class DataSet:
    """Photographs to evaluate on."""

    name: str  # of the split, or `images`
    examples: Sequence[Example]  # perhaps without references
    root: str | Path | None  # the folder from which the names of photographs count, if any
    training: TrainingCaptions | None  # of the data set that the model has learnt from
    provenance: Mapping[str, Any]

    @classmethod
    def of_evaluation(
        cls,
        config: EvaluateSettings,
        data: Config,
        backbones: Sequence[Backbone],
        vocabulary: Vocabulary,
    ) -> "DataSet":
        """The split or the folder that an evaluation asks for, with settings of `data_settings`."""
        if config.other_images:
            check_one_image(backbones, "evaluate with images or corruptions")
            parts = (part for backbone in backbones for part in backbone.modules())
            if any(isinstance(part, FeatureOnlyBackbone) for part in parts):
                raise CaptioningError(
                    "a captioner with backbone=features or frames does not read single "
                    "photographs: leave images and corruptions out, and it is evaluated on a data "
                    "set"
                )
        if config.images:
            examples, record = _of_folder(config, backbones[0])
            training = None
            if config.data.root is not None:  # of the run; its captions are enough
                _, _, training = _read_data_set(config, data, [], vocabulary)
            return cls("images", examples, given_path(config.images), training, record)
        data_set, splits, training = _read_data_set(config, data, backbones, vocabulary)
        record = {"split": config.split, "data_digest": data_digest(data_set)}
        return cls(config.split, splits[config.split], data["reader"].get("root"), training, record)


def _read_data_set(
    config: EvaluateSettings, data: Config, backbones: Sequence[Backbone], vocabulary: Vocabulary
) -> tuple[Splits, Splits, TrainingCaptions | None]:
    """A data set, the part that training used, and the captions of its training split.

    The captions are there if the model has learnt from them.
    """
    needed = (config.split,) if config.another_data_set else ("train", config.split)
    data_set = read_splits(data, backbones, config.cache, config.modules, needed)
    splits, captions = training_subset(data_set, data)
    if config.another_data_set:
        return data_set, splits, None
    check_vocabulary(captions, data.get("vocabulary"), vocabulary)
    return data_set, splits, TrainingCaptions(reference_words(splits["train"]))


def _of_folder(
    config: EvaluateSettings, backbone: Backbone
) -> tuple[Sequence[Example], dict[str, Any]]:
    file = None if config.references is None else given_path(config.references)
    with reading(groups=config.data.groups):
        images, absent = read_folder(given_path(config.images), file)
    cache = config.cache / "photographs"
    examples = readable({"images": images}, backbone.transform, cache, skip_broken=True)["images"]
    record: dict[str, Any] = {
        "photographs": config.images,
        "data_digest": data_digest({"images": examples}),
    }
    if file:
        if bare := [str(example.image_id) for example in examples if not example.references]:
            log.info(
                "photographs without references, captioned and not scored: %d (%s)",
                len(bare),
                listed(bare),
            )
        if absent:
            log.info("references without a photograph: %d", absent)
        record |= {
            "references": file_record(config.references),
            "photographs_without_references": len(bare),
            "references_without_photograph": absent,
        }
    return examples, record
