"""Scores captions: `python -m captioning.evaluate checkpoint=FILE`, or `captions=FILE references=FILE` without a model.

With `against=FILE` it also compares them with other captions of the same images.

B images, L context vectors of D features, H rows and W columns of pixels.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from captioning.borders.bounds import Name, PathText, Samples, Seconds, Seed
from captioning.borders.files import write_json
from captioning.config.check import FROM_CHECKPOINT
from captioning.config.command import command, start
from captioning.config.registry import CONF
from captioning.config.searches import settings_given
from captioning.config.settings import merged, relocate
from captioning.config.signatures import check_call, check_table
from captioning.data.caption_files import ImageId, common_images, read_captions, read_references
from captioning.data.example import Splits, digest, photographs, reference_texts
from captioning.data.inputs import Inputs
from captioning.data.module import CaptionData
from captioning.data.vocabulary import Vocabulary
from captioning.decoding import Caption
from captioning.errors import CaptioningError, no_setting
from captioning.features.brought import move_features
from captioning.features.inputs import inputs_of
from captioning.metrics import Scorer
from captioning.metrics.bootstrap import paired_bootstrap
from captioning.metrics.scorer import Metrics
from captioning.metrics.wording import wording
from captioning.report.comparison import print_comparison
from captioning.report.summary import print_summary
from captioning.runs.folder import new_folder
from captioning.runs.kept_attention import FILE, KeptCaption, write
from captioning.runs.software import device_name, software
from captioning.runs.splits import read_again
from captioning.trained import TrainedCaptioner
from captioning.training.callbacks.results import write_captions, write_scores

SETTINGS: Mapping[str, Any] = {
    "checkpoint": PathText | None,
    "split": Literal["test", "val"],
    "device": str,
    "modules": list[str],
    "cache": PathText,
    "features": PathText | None,
    "data": dict[str, Any],
    "captions": PathText | None,
    "references": PathText | None,
    "against": PathText | None,
    "common_only": bool,
    "keep": Annotated[int, Ge(0)],
    "metrics": Metrics,
    "timeout": Seconds,
    "bootstrap.samples": Samples,
    "bootstrap.seed": Seed,
    "name": Name,
    "runs": PathText,
}

log = logging.getLogger(__name__)


@command(CONF / "evaluate.yaml")
def main(config: DictConfig) -> None:
    """Scores, compares, writes and prints as `config` says."""
    check(config)
    source = FileCaptions(config) if config.captions is not None else CheckpointCaptions(config)
    others = None if config.against is None else read_captions(_path(config.against))
    given = source.given | ({f"against={config.against}": others} if others is not None else {})
    images = common_images(source.references, given, config.common_only)
    references = [source.references[image_id] for image_id in images]
    scorer = Scorer(references, OmegaConf.to_container(config.metrics), config.timeout)  # type: ignore[arg-type]

    folder = new_folder(config, Path(config.runs) / config.name)
    log.info("%s\nrun folder: %s", describe(len(images), len(source.references), given), folder)
    captions = source.captions()
    ours = [captions[image_id] for image_id in images]
    paths = [source.photographs[image_id] for image_id in images] if source.photographs else None
    # on disk before any scorer can fail
    write_captions(folder / "captions.jsonl", images, ours, references, photographs=paths)
    if source.kept:
        write(folder / FILE, source.kept)
    scores = scorer.score(dict(enumerate(ours)))
    write_captions(folder / "captions.jsonl", images, ours, references, scores, paths)
    scored = {
        "images": len(images),
        "images_with_references": len(source.references),
        "captions_left_out": len(captions) - len(images),
    }
    write_scores(folder / "scores.json", scores.corpus | wording(ours), software() | source.provenance() | scored)
    if others is not None:
        theirs = scorer.score({position: others[image_id] for position, image_id in enumerate(images)})
        differences = paired_bootstrap(scores.statistics, theirs.statistics, **config.bootstrap)
        record = {"against": _file(config.against), "images": len(images), **config.bootstrap}
        record["scores"] = {name: asdict(difference) for name, difference in differences.items()}
        write_json(folder / "comparison.json", record)
    print_summary(folder, title="score" if config.captions is not None else f"{config.split} score")
    if others is not None:
        print_comparison(folder)


def check(config: DictConfig) -> None:
    """Refuses settings that do not go together, or are not allowed.

    Raises:
        CaptioningError: says what is allowed.
    """
    check_table(SETTINGS, config)
    trained = config.checkpoint is not None or config.decoding.get("ensemble") is not None
    if trained == (config.captions is not None):
        raise CaptioningError("give either checkpoint=FILE, or captions=FILE and references=FILE")
    if trained and config.references is not None:
        raise CaptioningError("a checkpoint is scored on the references of its own data set: leave references out")


class FileCaptions:
    """Captions and references that lie in files."""

    photographs: Mapping[ImageId, str] = {}  # they are not known
    kept: Sequence[KeptCaption] = ()

    def __init__(self, config: DictConfig) -> None:
        self._files = {name: config[name] for name in ("captions", "references")}
        self._captions = read_captions(_path(config.captions))
        self.references = read_references(_path(config.references))
        self.given: dict[str, Mapping[ImageId, str]] = {f"captions={config.captions}": self._captions}

    def captions(self) -> Mapping[ImageId, str]:
        """The caption of each image."""
        return self._captions

    def provenance(self) -> dict[str, Any]:
        """The names and digests of the files."""
        return {name: _file(path) for name, path in self._files.items()}


class CheckpointCaptions:
    """Captions that a trained captioner has still to write, for a split of the data set that it was trained on.

    It writes them in 32-bit precision, whatever the run was trained and tested in.
    """

    def __init__(self, config: DictConfig) -> None:
        decoding = settings_given(config.decoding)
        path = None if config.checkpoint is None else _path(config.checkpoint)
        self._files, self._split = decoding.get("ensemble", [config.checkpoint]), config.split
        self._captioner = TrainedCaptioner.from_checkpoint(path, config.device, decoding, list(config.modules))
        self._cache = Path(config.cache).expanduser()
        backbones = [network.backbone for network in self._captioner.networks]
        if config.features is not None:
            move_features(backbones, _path(config.features))
        self._data = data_settings(self._captioner.config, config)
        splits = read_again(self._data, backbones, self._cache, list(config.modules))
        check_vocabulary(splits, self._data.get("vocabulary"), self._captioner.vocabulary)
        self._digest = digest(splits)
        self._examples = splits[config.split]
        names = photographs(self._examples, self._data["reader"].get("root"))
        self.photographs = {example.image_id: name for example, name in zip(self._examples, names, strict=True)}
        self.kept: list[KeptCaption] = []
        self._keep = config.keep
        texts = reference_texts(self._examples)
        self.references = {example.image_id: text for example, text in zip(self._examples, texts, strict=True)}
        self.given: dict[str, Mapping[ImageId, str]] = {}

    def captions(self) -> Mapping[ImageId, str]:
        """Decodes the whole split."""
        inputs, captions = self._inputs(), dict[ImageId, str]()
        decoded = decode(self._captioner, inputs, len(self._examples), self._data["eval_batch_size"])
        for row, (example, caption) in enumerate(zip(self._examples, decoded, strict=True)):
            captions[example.image_id] = self._captioner.vocabulary.decode(caption.tokens)
            if row < self._keep:
                rows, pixels = [each.rows([row]) for each in inputs], [each.pixels for each in inputs]
                self.kept += self._captioner.kept(example.image_id, caption, rows, pixels)
        return captions

    def _inputs(self) -> list[Inputs]:
        networks = self._captioner.networks
        return [inputs_of(self._examples, network.backbone, self._cache, self._split) for network in networks]

    def provenance(self) -> dict[str, Any]:
        """Checkpoint, data and decoding."""
        return {
            "checkpoint": _file(self._files[0]),
            **({"ensemble": [_file(file) for file in self._files]} if len(self._files) > 1 else {}),
            "split": self._split,
            "data_digest": self._digest,
            "decoding": self._captioner.config["decoding"],
            "device": device_name(self._captioner.device),
        }


def data_settings(saved: Mapping[str, Any], config: DictConfig) -> dict[str, Any]:
    """The run's data settings with those of `config` in their place, and its folders moved where `config` says.

    Raises:
        CaptioningError: a setting that the run's data has not, as `data.root` of drawn scenes, or a wrong value.
    """
    data: dict[str, Any] = saved["data"]
    given: dict[str, Any] = OmegaConf.to_container(config.data, resolve=True)  # type: ignore[assignment]
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name not in data:
            raise CaptioningError(no_setting("data", name, list(data)))
    for old, new in ((data.get("root"), config.data.root), (saved.get("cache"), config.cache)):
        if isinstance(old, str) and new is not None:
            data = relocate(data, old, str(new))
    data = merged(data, given)
    check_call("data", CaptionData, {"eval_batch_size": data.get("eval_batch_size")})
    return data


def check_vocabulary(splits: Splits, settings: Any, vocabulary: Vocabulary) -> None:
    """Refuses a data set that is not the one that `vocabulary` was made from, or brought to as `settings` says.

    Raises:
        CaptioningError: its training captions give other words.
    """
    if settings == FROM_CHECKPOINT:  # of another data set, before this one
        return
    words = (reference.words for example in splits["train"] for reference in example.references)
    check_call("data.vocabulary", Vocabulary.from_captions, settings if isinstance(settings, dict) else {})
    found = Vocabulary.from_captions(words, **settings)
    if found != vocabulary:
        shared = len(set(found.words) & set(vocabulary.words))
        raise CaptioningError(
            "this is not the data set that the checkpoint was trained on: its training captions give "
            f"{len(found.words)} words, the checkpoint has {len(vocabulary.words)}, and {shared} are in both. Set "
            "data.root, or caption other photographs with captioning.predict and score them with captions=FILE"
        )


def decode(captioner: TrainedCaptioner, inputs: Sequence[Inputs], count: int, batch_size: int) -> Iterator[Caption]:
    """The captions of `count` images in order, `batch_size` at a time, from what each network reads of them."""
    with tqdm(total=count, desc="captions", unit="image") as bar:
        for first in range(0, count, batch_size):
            rows = range(first, min(first + batch_size, count))
            captions = captioner.decode([each.rows(rows) for each in inputs], [each.pixels for each in inputs])
            yield from captions
            bar.update(len(rows))


def describe(images: int, of: int, given: Mapping[str, Mapping[ImageId, str]]) -> str:
    """One line on what is scored."""
    extra = "".join(
        f"; {len(file) - images} captions of {name} left out" for name, file in given.items() if len(file) > images
    )
    return f"images: {images}" + (f" of {of}" if images < of else "") + extra


def _path(file: Any) -> Path:
    return Path(str(file)).expanduser()


def _file(file: Any) -> dict[str, str]:
    """A file's name and content, for a record."""
    with _path(file).open("rb") as content:
        return {"file": str(file), "sha256": hashlib.file_digest(content, "sha256").hexdigest()}


if __name__ == "__main__":
    start(main)
