"""Schemas of commands: each setting with its type and description, and the rules among them."""

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo

from captioning.config.explain import explain
from captioning.config.registry import (
    CONF,
    CheckedPart,
    Setting,
    check_part,
    each_part,
    modules_of,
    settings_of,
    target_of,
    validate_arguments,
)
from captioning.config.types import (
    STRICT,
    Config,
    NotNegativeInt,
    PartConfig,
    PathText,
    Place,
    Role,
    between,
    format_errors,
    given_path,
)
from captioning.data.readers.reading import Reader
from captioning.data.subwords import BPE, build_vocabulary, read_tokenizer
from captioning.data.words import Language
from captioning.errors import CaptioningError
from captioning.pretrained.library import is_untrained, read_folder
from captioning.pretrained.named import check_checkpoint
from captioning.tokens import FROM_CHECKPOINT

ROOT = "data.root"


class Settings(BaseModel):
    """Settings of a command, or of a group of them; others may stand beside them."""

    model_config = ConfigDict(**STRICT, use_attribute_docstrings=True)
    _plain: Config = PrivateAttr(default_factory=dict)
    _composed: DictConfig = PrivateAttr()

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

    @property
    def composed(self) -> DictConfig:
        """What Hydra has composed, with interpolations, of a whole command."""
        return self._composed


S = TypeVar("S", bound=Settings)


def settings_of_parts(group: str) -> dict[str, dict[str, Setting]]:
    """What the parts in the files of a group declare, by the key at which a part stands."""
    found: dict[str, dict[str, Setting]] = {}
    for path in sorted((CONF / group).glob("*.yaml")):
        for key, part in each_part(group, yaml.safe_load(path.read_text(encoding="utf-8"))):
            for name, setting in settings_of(target_of(key, part["_target_"])).items():
                found.setdefault(key, {}).setdefault(name, setting)
    return found


def group_of(name: str, declared: Mapping[str, Setting], **fields: Any) -> Any:
    """A schema of declared settings, which may be null. The part itself judges their values."""
    nullable: Any = {}
    for key, setting in declared.items():
        nullable[key] = Annotated[Any, setting], Field(default=None, description=setting.text)
    return create_model(name, __base__=Settings, **nullable, **fields)


SEARCHES = settings_of_parts("decoding")
FILTERS = (group_of("FilterSettings", SEARCHES["decoding.filters"]) | None, None)
SearchSettings: Any = group_of("SearchSettings", SEARCHES["decoding"], filters=FILTERS)
"""Settings that replace those of a checkpoint's search."""
OF_CAPTIONERS = {
    "prompt": Setting(str, "text that asks a model of transformers, 'Describe the image.'", None),
    "ensemble": Setting(list[str], "checkpoints whose word probabilities are averaged", None),
}
EnsembleSettings: Any = group_of(
    "EnsembleSettings", SEARCHES["decoding"] | OF_CAPTIONERS, filters=FILTERS
)
"""Also those of models of transformers, and of several checkpoints that search together."""


class CaptionerSettings(Settings):
    """Settings of commands that caption with a checkpoint."""

    checkpoint: PathText | None
    """RUN_FOLDER/checkpoints/best.ckpt"""
    device: str
    """auto, cpu, cuda, cuda:1, ..."""
    bfloat16: bool
    """true: most matrices in bfloat16; faster where the device has it"""
    modules: list[str]
    """your own modules with parts of the checkpoint, such as [show_tell]"""
    save_attention: NotNegativeInt
    """images whose maps of every layer and head are saved in attention.npz"""
    decoding: EnsembleSettings

    @property
    def search(self) -> Config:
        """The settings of `decoding` that replace those of the checkpoint."""
        return settings_given(self.decoding.plain)

    def check_checkpoints(self) -> None:
        """Refuse checkpoints of `checkpoint` and `decoding.ensemble` that are not there."""
        members = self.decoding.ensemble
        for setting in (self.checkpoint, *(members if isinstance(members, list) else ())):
            if is_untrained(setting):
                read_folder("checkpoint", setting)
            elif setting is not None:
                check_checkpoint("checkpoint", setting)


class PageSettings(Settings):
    """Settings below `page`, of commands that write one."""

    image_size: Annotated[int, between(32, 2048)]
    """pixels of the longer side of an image in index.html"""
    embed_mb: Annotated[float, between(0, 1000)]
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
        settings = schema.model_validate(
            OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        )
        settings._composed = config
        return settings
    except ValidationError as error:
        raise CaptioningError(format_errors("", error.errors())) from error
    except MissingMandatoryValue as error:
        if error.full_key != ROOT:
            raise
        raise CaptioningError(explain(error) + _download_hint()) from error


def _download_hint() -> str:
    """How to get the chosen data set, if `captioning download` has it or what it is made of."""
    name = str(HydraConfig.get().runtime.choices.get("data")).partition("_")[0]
    known = (CONF / "download" / "data" / f"{name}.yaml").is_file()
    return f"; captioning download data={name} gets its images and captions" if known else ""


def described(schema: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield key, type and description of each setting of a command, those in its groups too."""
    for key, field in each_field(schema, prefix):
        if _groups(field):
            continue
        hint: Any = Annotated[field.annotation, *field.metadata, ""]
        for note in field.metadata:
            if isinstance(note, Setting):
                hint = note.hint
        yield key, hint, " ".join((field.description or "").split())


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


NULLS = {"search_settings": SearchSettings, "captioner_settings": EnsembleSettings}
"""Names in the defaults of commands, for all settings of a search as null."""
for _name, _schema in NULLS.items():
    _nulls = [f"{key}=null" for key, _, _ in described(_schema, "decoding.")]
    ConfigStore.instance().store(_name, OmegaConf.from_dotlist(_nulls))


def settings_given(settings: Config) -> Config:
    """The settings of a command that are not null, and so replace a run's."""
    given = {}
    for key, value in settings.items():
        chosen = settings_given(value) if isinstance(value, dict) else value
        if chosen not in (None, {}):
            given[key] = chosen
    return given


def check_folder(key: str, folder: object) -> None:
    """Refuse a folder that is not there."""
    if not os.path.isdir(given_path(folder)):  # noqa: PTH112 - `Path.is_dir` may raise
        hint = _download_hint() if key == ROOT else ""
        raise CaptioningError(f"{key}={folder!s:.200} does not exist, or is not a folder{hint}")
