"""The photographs that a checkpoint is evaluated on: a split of a data set, or a folder."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from captioning.backbones.precomputed import Precomputed
from captioning.captioner import TrainedCaptioner
from captioning.config.check import FROM_CHECKPOINT
from captioning.config.explain import explain
from captioning.config.paths import given_path
from captioning.config.registry import check_arguments
from captioning.config.settings import has_other_photographs, is_another_data_set, merged, relocate
from captioning.config.types import check_value
from captioning.data.example import Example, Splits, digest
from captioning.data.folder import PhotographFolder
from captioning.data.module import CaptionData
from captioning.data.photographs import readable
from captioning.data.vocabulary import Vocabulary
from captioning.errors import CaptioningError, no_setting
from captioning.metrics.wording import TrainingCaptions
from captioning.runs.networks import Network
from captioning.runs.results import file_record
from captioning.runs.splits import read_again

NAMED = 3
"""Photographs that a line of the log shows."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Material:
    """Photographs, and what they are compared with.

    Attributes:
        name: of the split, or `images`.
        examples: the photographs; those of a folder may be without references.
        root: the folder from which their names count, if there is one.
        training: the captions that the model has learnt from, where they are at hand.
        provenance: where all of it comes from.
    """

    name: str
    examples: Sequence[Example]
    root: str | Path | None
    training: TrainingCaptions | None
    provenance: Mapping[str, Any]


def material_of(config: DictConfig, captioner: TrainedCaptioner, data: Mapping[str, Any]) -> Material:
    """The photographs that `config` asks for.

    Args:
        config: of the command.
        captioner: that is evaluated.
        data: as `data_settings` gives it.

    Raises:
        CaptioningError: the data set is not there or not that of the checkpoint, or the folder cannot be read.
    """
    return _of_split(config, captioner, data) if config.images is None else _of_folder(config, captioner, data)


def _of_split(config: DictConfig, captioner: TrainedCaptioner, data: Mapping[str, Any]) -> Material:
    backbones = [network.backbone for network in captioner.networks]
    splits = read_again(data, backbones, given_path(config.cache), list(config.modules))
    if is_another_data_set(config):
        training = _training_at_hand(config, captioner, captioner.config["data"])
    else:
        check_vocabulary(splits, data.get("vocabulary"), captioner.vocabulary)
        training = _training(splits)
    record = {"split": config.split, "data_digest": digest(splits)}
    return Material(config.split, splits[config.split], data["reader"].get("root"), training, record)


def _of_folder(config: DictConfig, captioner: TrainedCaptioner, data: Mapping[str, Any]) -> Material:
    folder, cache = given_path(config.images), given_path(config.cache)
    file = None if config.references is None else given_path(config.references)
    found = PhotographFolder.read(folder, file)
    transform = captioner.networks[0].backbone.transform
    (examples,) = readable({"images": found.examples}, transform, cache / "photographs", skip_broken=True).values()
    record: dict[str, Any] = {"photographs": str(config.images), "data_digest": digest({"images": examples})}
    if file is not None:
        bare = [example.image_id for example in examples if not example.references]
        if bare:
            names = ", ".join(map(str, bare[:NAMED])) + (", ..." if len(bare) > NAMED else "")
            log.info("photographs without references, captioned and not scored: %d (%s)", len(bare), names)
        if found.absent:
            log.info("references without a photograph: %d", found.absent)
        record["references"] = file_record(config.references)
        record |= {"photographs_without_references": len(bare), "references_without_photograph": found.absent}
    return Material("images", examples, folder, _training_at_hand(config, captioner, data), record)


def _training_at_hand(
    config: DictConfig, captioner: TrainedCaptioner, data: Mapping[str, Any]
) -> TrainingCaptions | None:
    """The captions of the run's data set, of which the photographs need not be there."""
    other = is_another_data_set(config)
    try:
        splits = read_again(data, [], given_path(config.cache), list(config.modules))
        check_vocabulary(splits, data.get("vocabulary"), captioner.vocabulary)
    except (CaptioningError, OSError, ValueError) as error:
        if config.data.root is not None and not other:
            raise
        where = "they are not where the run had them" if other else "data.root has to say where they are"
        log.info("no novel and unseen pairs, which need the captions of training: %s (%s)", where, explain(error))
        return None
    return _training(splits)


def _training(splits: Splits) -> TrainingCaptions:
    return TrainingCaptions(reference.words for example in splits["train"] for reference in example.references)


def check_views(networks: Sequence[Network], config: DictConfig) -> None:
    """Refuses other photographs, and changed ones, for what reads none.

    Raises:
        CaptioningError: a network has features that were computed elsewhere in the place of photographs.
    """
    parts = (part for network in networks for part in network.backbone.modules())  # also of those side by side
    if has_other_photographs(config) and any(isinstance(part, Precomputed) for part in parts):
        raise CaptioningError(
            "a captioner with backbone=features reads what was computed elsewhere, and no photographs: leave images "
            "and views out, and it is evaluated on the data set whose features there are"
        )


def data_settings(saved: Mapping[str, Any], config: DictConfig) -> dict[str, Any]:
    """The run's data settings with those of `config` in their place, and its folders moved where `config` says.

    Those of another data set stand in the place of all.

    Raises:
        CaptioningError: a setting that the run's data has not, as `data.root` of drawn scenes, or a wrong value.
    """
    data: dict[str, Any] = saved["data"]
    given: dict[str, Any] = OmegaConf.to_container(config.data, resolve=True)  # type: ignore[assignment]
    given = {name: value for name, value in given.items() if value is not None}
    for name in () if is_another_data_set(config) else given:
        if name not in data:
            raise CaptioningError(no_setting("data", name, list(data)))
    for old, new in ((data.get("root"), config.data.root), (saved.get("cache"), config.cache)):
        if isinstance(old, str) and new is not None:
            data = relocate(data, old, str(new))
    data = given if is_another_data_set(config) else merged(data, given)
    check_arguments("data", CaptionData, {"eval_batch_size": data.get("eval_batch_size")})
    return data


def check_vocabulary(splits: Splits, settings: Any, vocabulary: Vocabulary) -> None:
    """Refuses a data set that is not the one that `vocabulary` was made from, or brought to as `settings` says.

    Raises:
        CaptioningError: its training captions give other words.
    """
    if settings == FROM_CHECKPOINT:  # of another data set, before this one
        return
    words = (reference.words for example in splits["train"] for reference in example.references)
    check_value("data.vocabulary", settings, dict[str, Any])
    check_arguments("data.vocabulary", Vocabulary.from_captions, settings)
    found = Vocabulary.from_captions(words, **settings)
    if found != vocabulary:
        shared = len(set(found.words) & set(vocabulary.words))
        raise CaptioningError(
            "this is not the data set that the checkpoint was trained on: its training captions give "
            f"{len(found.words)} words, the checkpoint has {len(vocabulary.words)}, and {shared} are in both. Set "
            "data.root to that one; other photographs are captioned with images=FOLDER, without data.root"
        )
