"""Schemas of commands: each setting with its type and description, and the rules among them."""

import os
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from annotated_types import Interval
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue
from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from captioning.config.explain import explain
from captioning.config.registry import CONF, CheckedPart, check_part, modules_of, validate_arguments
from captioning.config.types import (
    STRICT,
    Config,
    NotNegativeInt,
    PartConfig,
    Place,
    Role,
    format_errors,
    given_path,
)
from captioning.data.readers.reading import Reader
from captioning.data.subwords import BPE, build_vocabulary, read_tokenizer
from captioning.data.words import Language
from captioning.errors import CaptioningError
from captioning.pretrained.api import is_api, read_address
from captioning.pretrained.library import is_untrained, read_folder
from captioning.pretrained.named import check_checkpoint
from captioning.tokens import FROM_CHECKPOINT

S = TypeVar("S", bound=BaseModel)
ROOT = "data.root"


class Settings(BaseModel):
    """Settings of a command, or of a group of them; others may stand beside them."""

    model_config = ConfigDict(**STRICT, use_attribute_docstrings=True)
    _plain: Config = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep_plain(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        settings = validate(given)
        settings._plain = given
        return settings

    @property
    def plain(self) -> Config:
        """The same as they were given: plain values in their order, others among them."""
        return self._plain


class FilterSettings(Settings):
    """Filters that replace those of a checkpoint's search; described as in `SearchSettings`."""

    min_length: Any = None
    """shortest caption, in words"""
    no_repeat_ngram: Any = None
    """no repeated word sequence: of this length, with 2 no pair of words; 0 allows all"""
    no_word_twice: Any = None
    """no word twice in a row"""
    forbidden: Any = None
    """forbidden words"""
    prefix: Any = None
    """first words: every caption begins with them"""
    no_bad_ending: Any = None
    """complete endings: no caption ends with "a", "of" and the like"""


class SearchSettings(Settings):
    """Settings that replace those of a checkpoint's search, which judges them.

    The page of `captioning serve` shows a description as a label, and what follows its first colon
    as an explanation.
    """

    width: Any = None
    """beam width: captions extended together"""
    groups: Any = None
    """groups: each gives one caption"""
    diversity: Any = None
    """diversity: cost of a word per earlier group that chose it"""
    max_length: Any = None
    """longest caption, in words: or in pieces of subwords; the end counts as one"""
    length_penalty: Any = None
    """prefer longer captions: 0 ranks by probability, 1 by the mean per word"""
    normalisation: Any = None
    """length formula: length, or gnmt (Wu et al. 2016)"""
    n_best: Any = None
    """alternatives: captions per image, the best included"""
    early_stopping: Any = None
    """early stopping: end after as many captions as the beam is wide"""
    n: Any = None
    """samples: the most probable is the caption"""
    temperature: Any = None
    """temperature: higher gives more surprising captions"""
    top_k: Any = None
    """number of candidate words: samples from this many most probable words"""
    top_p: Any = None
    """share of candidate words: samples from the most probable with this total probability"""
    seed: Any = None
    """random seed"""
    filters: FilterSettings | None = None


class EnsembleSettings(SearchSettings):
    """Also several checkpoints that search together."""

    ensemble: Any = None
    """checkpoints whose word probabilities are averaged"""
    prompt: Any = None
    """text that asks a model of transformers or of a server, such as 'Describe the image.'"""
    size: Any = None
    """pixels of the longer side of the images that a server is sent"""
    quality: Any = None
    """of these JPEG files, 1 to 100"""
    omit: Any = None
    """fields of a request that the server does not know, such as [temperature, seed]"""
    requests: Any = None
    """images that a server is asked about at once, at most those of a batch"""
    budget: Any = None
    """the most requests of this command to a server"""
    timeout: Any = None
    """seconds that a server has for an answer"""
    tries: Any = None
    """the most requests about an image, after no answer, HTTP 429 or 5xx"""
    backoff: Any = None
    """seconds before the second of them; doubled for each further one"""


class CaptionerSettings(Settings):
    """Settings of commands that caption with a checkpoint."""

    device: str
    """auto, cpu, cuda, cuda:1, ..."""
    bfloat16: bool
    """true: most matrices in bfloat16; faster where the device has it"""
    modules: list[str]
    """your own modules with parts of the checkpoint, such as [show_tell]"""
    save_attention: NotNegativeInt
    """images whose maps of every layer and head are saved in attention.npz"""
    decoding: EnsembleSettings


class PageSettings(Settings):
    """Settings below `page`, of commands that write one."""

    image_size: Annotated[int, Interval(ge=32, le=2048)]
    """pixels of the longer side of an image in index.html"""
    embed_mb: Annotated[float, Interval(ge=0, le=1000)]
    """MB of images in index.html; the rest is saved next to it, in photographs/"""


class DataSettings(Settings, extra="allow"):
    """Settings below `data`, of a data set that is read."""

    reader: PartConfig
    vocabulary: Config | Literal[FROM_CHECKPOINT]  # type: ignore[valid-type]
    root: Place[Any] = None

    @property
    def caption_language(self) -> Language:
        """The language of the captions, with the way to split them into words."""
        return Language.of(self.plain)

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        """Refuse what files and settings decide, for which no PyTorch is imported."""
        if "root" in self.model_fields_set:
            check_folder(ROOT, self.root)
        self.caption_language.split("a word")
        if self.vocabulary != FROM_CHECKPOINT:
            validate_arguments("data.vocabulary", build_vocabulary, self.vocabulary)
            if (subwords := self.vocabulary.get("subwords")) not in (None, BPE):
                read_tokenizer(subwords)
        try:
            check_reader(self.reader)
        except FileNotFoundError as error:
            raise CaptioningError(explain(error) + _download_hint()) from error
        return self


def check_reader(reader: Config) -> CheckedPart:
    """Refuse the settings of a reader, and files that it cannot do without and that are absent."""
    return check_part("data.reader", Reader, reader, modules_of(reader))


def check_settings(schema: type[S], config: DictConfig) -> S:
    """The settings of a command as an object of its schema.

    Raises:
        CaptioningError: they lack a value, have other types, or are against the command's rules.
    """
    try:
        return schema.model_validate(
            OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        )
    except ValidationError as error:
        raise CaptioningError(format_errors("", error.errors())) from error
    except MissingMandatoryValue as error:
        if error.full_key != ROOT:
            raise
        raise CaptioningError(explain(error) + _download_hint()) from error


def _download_hint() -> str:
    """How to get the chosen data set, if `captioning download` has it or what it is made of."""
    name = str(HydraConfig.get().runtime.choices.get("data")).partition("_")[0]
    path = CONF / "download" / "data" / f"{name}.yaml"
    if not path.is_file():
        return ""
    own = OmegaConf.load(path)
    source = OmegaConf.merge(*(OmegaConf.load(path.with_stem(base)) for base in own.defaults), own)
    gigabytes = sum(archive.size for archive in source.archives.values()) / 1e9
    return (
        f"; captioning download data={name} gets images and Karpathy's {source.splits}, "
        f"{gigabytes:.1f} GB"
    )


def described(schema: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield key, type and description of each setting of a command, those in its groups too."""
    for key, field in each_field(schema, prefix):
        if not _groups(field):
            bounded: Any = Annotated[field.annotation, *field.metadata, ""]
            yield key, bounded, " ".join((field.description or "").split())


def each_field(schema: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield key and declaration of each setting and group of a command."""
    for name, field in schema.model_fields.items():
        key = f"{prefix}{name}"
        yield key, field
        for group in _groups(field):
            yield from each_field(group, f"{key}.")


def with_role(schema: type[BaseModel], role: Role) -> tuple[str, ...]:
    """The settings and groups that are declared with a role."""
    return tuple(key for key, field in each_field(schema) if role in field.metadata)


def _groups(field: FieldInfo) -> list[type[BaseModel]]:
    """The schemas of what is below a setting; none of a plain one."""
    hints = (field.annotation, *get_args(field.annotation))
    return [hint for hint in hints if isinstance(hint, type) and issubclass(hint, BaseModel)]


def settings_given(settings: DictConfig | Config) -> Config:
    """The settings of a command that are not null, and so replace a run's."""
    plain: Any = settings
    if OmegaConf.is_config(settings):
        plain = OmegaConf.to_container(settings, resolve=True)
    given = {}
    for key, value in plain.items():
        chosen = settings_given(value) if isinstance(value, dict) else value
        if chosen not in (None, {}):
            given[key] = chosen
    return given


def check_checkpoints(config: DictConfig) -> None:
    """Refuse checkpoints of `checkpoint` and `decoding.ensemble` that are not there."""
    members = config.decoding.get("ensemble")
    for setting in (config.checkpoint, *(members if isinstance(members, ListConfig) else ())):
        if is_api(setting):
            read_address(setting)
        elif is_untrained(setting):
            read_folder("checkpoint", setting)
        elif setting is not None:
            check_checkpoint("checkpoint", setting)


def check_folder(key: str, folder: object) -> None:
    """Refuse a folder that is not there."""
    if not os.path.isdir(given_path(folder)):  # noqa: PTH112 - `Path.is_dir` may raise
        hint = _download_hint() if key == ROOT else ""
        raise CaptioningError(f"{key}={folder!s:.200} does not exist, or is not a folder{hint}")


def is_another_data_set(config: DictConfig) -> bool:
    """Return True if an evaluation has its own reader, as with `data=csv`."""
    return "_target_" in (config.data.get("reader") or {})


def has_other_photographs(config: DictConfig) -> bool:
    """Return True for an evaluation of a folder, or of changed photographs."""
    return config.images is not None or list(config.corruptions) != ["full"]
