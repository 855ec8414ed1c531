"""Score captions: `python -m captioning.evaluate checkpoint=FILE`, or `captions=FILE
references=FILE` without a model.

A checkpoint captions its test split, or `images=FOLDER`, also in `corruptions` of the same
photographs. With `against=FILE` the captions are also compared with others of the same images.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, MinLen
from omegaconf import DictConfig, open_dict

from captioning.config.command import command, start
from captioning.config.registry import CONF
from captioning.config.settings import (
    EnsembleSettings,
    Settings,
    check_checkpoints,
    check_folder,
    has_other_photographs,
    is_another_data_set,
    raise_first,
    settings_given,
)
from captioning.config.types import Name, PathText, Samples, Seconds, Seed
from captioning.data.readers.captions import ImageId, common_images, read_captions, read_references
from captioning.data.views import NAMED
from captioning.data.words import Code, Language, Tokens
from captioning.describe.findings import find_in_texts
from captioning.download.named import checkpoint_path, given_path, is_elsewhere
from captioning.files import write_json
from captioning.metrics.bootstrap import paired
from captioning.metrics.statistics import is_constant
from captioning.metrics.table import MetricNames, unsupported_metrics
from captioning.metrics.wording import Said, caption_statistics, wording
from captioning.progress import progress_bar
from captioning.report.tables import print_comparison, print_summary, print_views
from captioning.runs.attention_file import FILE, KeptCaption, write
from captioning.runs.folder import new_folder
from captioning.runs.results import device_name, file_record, software, write_scores
from captioning.runs.scoring import Scoring, Source

if TYPE_CHECKING:  # PyTorch takes seconds, and files of captions are scored without it
    from captioning.decoding import Caption


class BootstrapSettings(Settings):
    """Settings below `bootstrap`."""

    samples: Samples
    """resampled sets of images, of the comparison"""
    seed: Seed
    """of the samples"""


class DataSettings(Settings, extra="allow"):
    """Settings below `data`, which a run or a data set has too."""

    root: Any = None
    """folder of the data set; null: as in the run"""
    eval_batch_size: Any = None
    """images per batch; null: as in the run"""


class EvaluateSettings(Settings):
    """Settings of `captioning evaluate`."""

    checkpoint: PathText | None
    """RUN_FOLDER/checkpoints/best.ckpt"""
    split: Literal["test", "val"]
    """or val"""
    images: PathText | None
    """a folder of photographs in the place of the split"""
    corruptions: Annotated[list[Literal[*NAMED]], MinLen(1)]  # type: ignore[valid-type]
    """also png, jpeg75, jpeg50, blur, dark: the same photographs changed, as a table"""
    device: str
    """auto, cpu, cuda, cuda:1, ..."""
    calibrate: bool
    """true, with split=val: the checkpoint keeps the scores that confidence is made of"""
    bfloat16: bool
    """true: most matrices in bfloat16; faster where the device has it"""
    cache: PathText
    """drawn scenes and cached features"""
    features: PathText | None
    """where those of backbone=features lie; null: as in the run"""
    modules: list[str]
    """of yours, whose parts the checkpoint names, such as [show_tell]"""
    data: DataSettings
    decoding: EnsembleSettings
    captions: PathText | None
    """COCO's results format, a run's captions.jsonl, or a table"""
    references: PathText | None
    """COCO's or Karpathy's JSON, a table image,caption, or a captions.jsonl, which has its
    references
    """
    language: Code | None
    """of these captions, ISO 639-1; null: en, or that of the checkpoint"""
    tokens: Tokens | None
    """characters, or a function of yours; null: words, or those of the checkpoint"""
    objects: PathText | None
    """COCO's instances_val2014.json: also CHAIR, the objects that are not there"""
    against: PathText | None
    """other captions of the same images, to compare with"""
    shuffled: bool
    """true: each caption with the next image's references: chance level from language priors"""
    common_only: bool
    """true: score the images that all files have, and say how many"""
    save_attention: Annotated[int, Ge(0)]
    """images whose maps of every layer and head attention.npz keeps"""
    metrics: MetricNames
    """also WER, an error rate; sacreBLEU, an extra; SPICE: a large download, and a Java of
    version 8 to 14
    """
    embeddings: list[PathText]
    """[OURS.npz] for CLIPScore; those of the texts that are written beside a file that does not
    exist yet
    """
    clip: PathText | None
    """a folder of open_clip's weights, which makes the embeddings of a checkpoint's captions"""
    timeout: Seconds
    """seconds that a Java scorer may take, again for every 500 captions"""
    bootstrap: BootstrapSettings
    name: Name
    """the folder is <runs>/<name>"""
    runs: PathText
    """the folder that has it"""
    folder: str | None
    """set by the command"""


FOR_TRAINING = ("backbone", "schedule", "trainer")
"""Groups that a data set may choose; a checkpoint has its own or needs none."""

log = logging.getLogger(__name__)


@command(CONF / "evaluate.yaml", EvaluateSettings)
def main(config: DictConfig) -> None:
    """Caption, score, compare, write and print."""
    check(config)
    others = None if config.against is None else read_captions(given_path(config.against))
    source = of_checkpoint(config) if config.captions is None else of_files(config)
    given = {**source.given} | ({f"against={config.against}": others} if others is not None else {})
    images = common_images(source.references, given, config.common_only)
    scoring = Scoring(config, source, images)

    folder = new_folder(config, Path(config.runs) / config.name)
    told = [
        describe(len(images), len(source.references), given),
        *unsupported_metrics(config.metrics, source.language.code),
    ]
    if scoring.scorer and "CIDEr" in config.metrics and is_constant(scoring.scorer.references):
        told.append(
            "CIDEr is left out: it is 0 for any captions of one image, or of images with the same "
            "references"
        )
    log.info("%s\nrun folder: %s", "\n".join(told), folder)
    texts = {
        name: [getattr(each, "text", each) for each in file.values()]
        for name, file in given.items()
    }
    texts["references" if config.references is None else f"references={config.references}"] = list(
        chain.from_iterable(source.references.values())
    )
    for name, each in texts.items():
        for finding in find_in_texts(each):
            log.warning("%s, %s; they are scored as they are", name, finding)
    first, *more = config.corruptions
    ours, scores = scoring.score(folder / "captions.jsonl", first)
    if source.kept:
        write(folder / FILE, source.kept)
    views = {first: ours} | {
        view: scoring.score(folder / f"captions-{view}.jsonl", view)[0] for view in more
    }
    provenance = software(source.language) | dict(source.provenance) | scoring.counts
    provenance |= {"signatures": scoring.scorer.signatures} if scoring.scorer else {}
    write_scores(folder / "scores.json", ours, provenance, views if more else None)
    if others is not None:
        assert scores is not None  # `check` has refused it without references
        assert scoring.scorer is not None
        scoring.embed([[others[image_id]] for image_id in scoring.scored])
        theirs = scoring.scorer.score(
            {row: others[image_id] for row, image_id in enumerate(scoring.scored)}
        )
        record = {
            "against": file_record(config.against),
            "images": len(scoring.scored),
            **config.bootstrap,
        }
        compared = paired(scores.statistics, theirs.statistics, **config.bootstrap)
        record["scores"] = {name: asdict(each) for name, each in compared.items()}
        write_json(folder / "comparison.json", record)
    title = (
        "score"
        if config.captions is not None or config.images is not None
        else f"{config.split} score"
    )
    print_summary(folder, title if not more else f"{title}, {first}")
    if others is not None:
        print_comparison(folder)
    if more:
        print_views(folder)


def check(config: DictConfig) -> None:
    """Refuse wrong settings, and settings that do not go together."""
    with open_dict(config):
        for name in FOR_TRAINING:
            config.pop(name, None)
        config.data.pop("max_words", None)  # of another data set: the run's own bounds its captions
    trained = config.checkpoint is not None or config.decoding.get("ensemble") is not None
    altered = config.bfloat16 or config.shuffled or settings_given(config.decoding)
    altered = (
        altered
        or has_other_photographs(config)
        or is_another_data_set(config)
        or config.split != "val"
    )
    images, references = config.images is not None, config.references is not None
    own_words = config.tokens or (
        not is_another_data_set(config) and {"language", "tokens"} & config.data.keys()
    )

    refused = {
        "give either checkpoint=FILE, or captions=FILE and references=FILE": trained
        == (config.captions is not None),
        "a checkpoint is scored on references of its own data set: leave references out, or name "
        "their photographs "
        "with images=FOLDER": trained and references and not images,
        "language and tokens are those of the checkpoint: leave them out": trained
        and (config.language or own_words),
        "images and corruptions are for a checkpoint=FILE to caption: leave them out with "
        "captions=FILE": (not trained and has_other_photographs(config)),
        f"corruptions={list(config.corruptions)} has one twice: name each once": len(
            set(config.corruptions)
        )
        < len(config.corruptions),
        "images=FOLDER and another data set are two things to caption: leave one of them out": (
            images and is_another_data_set(config)
        ),
        "CLIPScore is one of captions with references: give references=FILE with images=FOLDER": (
            images and not references and bool(config.embeddings)
        ),
        "clip=FOLDER embeds the photographs of a checkpoint=FILE into embeddings=[FILE.npz]: give "
        "both": (config.clip is not None and not (trained and config.embeddings)),
        "objects are compared with those that references name: give references=FILE with "
        "images=FOLDER": (images and not references and config.objects is not None),
        "against compares scores, and those need references=FILE with images=FOLDER": (
            images and config.against is not None and not references
        ),
        "calibrate=true writes into a checkpoint how it scores its own validation captions: give "
        "checkpoint=FILE and "
        "split=val, and leave out decoding, bfloat16, shuffled, images, corruptions and other "
        "data": (
            config.calibrate
            and (config.checkpoint is None or is_elsewhere(config.checkpoint) or altered)
        ),
    }
    raise_first(refused)
    if images:
        check_folder("images", config.images)
    check_checkpoints(config)
    if config.data.get("root") is not None:
        check_folder("data.root", config.data.root)


def describe(images: int, of: int, given: Mapping[str, Mapping[ImageId, Any]]) -> str:
    """One line about the scored images."""
    extra = "".join(
        f"; {len(file) - images} captions of {name} left out"
        for name, file in given.items()
        if len(file) > images
    )
    return f"images: {images}" + (f" of {of}" if images < of else "") + extra


def of_files(config: DictConfig) -> Source:
    """Captions and references of files."""
    language, texts = Language.of(config), read_captions(given_path(config.captions))
    captions = {image_id: Said(text, language.words_of(text)) for image_id, text in texts.items()}
    return Source(
        read_references(given_path(config.references), captions=captions),
        lambda view: captions,
        lambda captions: wording([caption.words for caption in captions], language.code),
        {name: file_record(config[name]) for name in ("captions", "references")},
        language,
        {f"captions={config.captions}": captions},
    )


def of_checkpoint(config: DictConfig) -> Source:
    """Captions that a checkpoint or an ensemble decodes, in 32-bit precision unless `bfloat16`."""
    from captioning.backbones.precomputed import move_features
    from captioning.captioner import TrainedCaptioner
    from captioning.data.example import photographs, reference_texts
    from captioning.decoding.confidence import quantiles_of, with_entropy
    from captioning.features.build import FeatureStore
    from captioning.runs.checkpoint import keep_quantiles
    from captioning.runs.data_set import DataSet, data_settings

    decoding = settings_given(config.decoding)
    files = decoding.get("ensemble", [config.checkpoint])
    captioner = TrainedCaptioner.from_checkpoint(
        config.checkpoint, config.device, decoding, list(config.modules), config.bfloat16
    )
    captioner.search, vocabulary = with_entropy(captioner.search), captioner.vocabulary
    backbones = [network.backbone for network in captioner.networks]
    if config.features is not None:
        move_features(backbones, given_path(config.features))
    data = data_settings(captioner.config, config)
    material = DataSet.of_evaluation(config, captioner.config["data"], data, backbones, vocabulary)
    examples, kept = material.examples, list[KeptCaption]()

    def decoded(inputs: Sequence[Any], pixels: Sequence[bool]) -> "Iterator[Caption]":
        count, size = len(examples), data["eval_batch_size"]
        with progress_bar("captions", count, "image") as bar:
            for first in range(0, count, size):
                rows = range(first, min(first + size, count))
                yield from captioner.decode([each.rows(rows) for each in inputs], pixels)
                bar.update(len(rows))

    store = FeatureStore(given_path(config.cache))

    def captions(view: str) -> dict[ImageId, Said]:
        name = material.name if len(config.corruptions) == 1 else f"{material.name}, {view}"
        inputs = [each.viewed(NAMED[view]).open_inputs(examples, store, name) for each in backbones]
        pixels = [each.pixels for each in inputs]
        keep = config.save_attention if view == config.corruptions[0] else 0
        said, scores = dict[ImageId, Said](), list[float]()
        for row, (example, caption) in enumerate(
            zip(examples, decoded(inputs, pixels), strict=True)
        ):
            words = vocabulary.words_of(caption.tokens)
            said[example.image_id] = Said(
                vocabulary.language.join(words), words, caption.finished, caption.entropy
            )
            scores.append(caption.score)
            if row < keep:
                found = captioner.kept(
                    example.image_id, caption, [each.rows([row]) for each in inputs], pixels
                )
                kept.extend(
                    replace(each, labels=example.source[: each.maps["mean"].shape[-1]])
                    for each in found
                )
        if config.calibrate:
            keep_quantiles(checkpoint_path(files[0]), quantiles_of(scores))
        return said

    ids = [example.image_id for example in examples]
    return Source(
        dict(zip(ids, reference_texts(examples), strict=True)),
        captions,
        lambda captions: caption_statistics(captions, material.training, vocabulary.language.code),
        {
            "checkpoint": file_record(files[0]),
            **({"ensemble": [file_record(file) for file in files]} if len(files) > 1 else {}),
            **material.provenance,
            "decoding": captioner.config["decoding"],
            "device": device_name(captioner.device),
            **({"bfloat16": True} if config.bfloat16 else {}),
        },
        vocabulary.language,
        photographs=dict(zip(ids, photographs(examples, material.root), strict=True)),
        root=Path(material.root or "").expanduser(),
        metrics=() if config.images is not None else data.get("metrics", ()),
        kept=kept,
    )


if __name__ == "__main__":
    start(main)
