"""The files of a run folder, read as data of a stranger's: bounded, checked, and named where they are damaged."""

import csv
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StringConstraints, ValidationError
from yaml.composer import ComposerError

from captioning.errors import CaptioningError
from captioning.settings import each_setting

MOST_BYTES = {"config.yaml": 2**18, "scores.json": 2**20, "metrics.csv": 2**28}
"""Some fifty times what a long run leaves."""
QUOTED = 200
"""Characters of what is wrong that a message shows."""
LARGEST = 1e100
"""Of logged values: beyond it axes cannot be scaled."""

Line = Annotated[str, StringConstraints(pattern=r"^\P{C}*$", max_length=200)]
"""Text that is printed as it is: no line breaks, no control characters, no halves of characters."""
Score = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]


class Choices(BaseModel):
    """What a run's system and data set are called."""

    model: Annotated[Line, Field(min_length=1)]
    data: Line


class Config(BaseModel):
    """What a report shows of `config.yaml`, and every setting's value as text by its key."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    name: Line
    seed: Annotated[StrictInt, Field(ge=0, lt=2**32)]
    test: StrictBool = True
    choices: Choices
    settings: dict[Line, str]


class Provenance(BaseModel):
    """What a report shows of a run's origin."""

    model_config = ConfigDict(strict=True)

    data_digest: Line | None = None
    parameters: dict[Line, Annotated[int, Field(ge=0, le=10**15)]] = {}
    seconds_to_best: Score | None = None
    device: Line = "?"


class Record(BaseModel):
    """`scores.json`; a score that is null could not be computed."""

    model_config = ConfigDict(strict=True)

    scores: dict[Line, Score | None]
    provenance: Provenance


def read_config(path: Path) -> Config | None:
    """What `config.yaml` holds, as plain values: nothing in it is resolved, imported or called.

    Returns:
        None if it is not that of a run, but an evaluation's or another program's.

    Raises:
        CaptioningError: the file is damaged.
    """
    with _damage_named(path):
        found = yaml.load(_content(path), _PlainLoader)
        if not isinstance(found, dict) or "model" not in found:
            return None
        found.setdefault("choices", _choices(found))
        return Config.model_validate(found | {"settings": {key: repr(value) for key, value in each_setting(found)}})


def _choices(found: Mapping[str, Any]) -> dict[str, str]:
    """Of a run that an earlier version has left: they are in its names alone."""
    name = str(found.get("name"))
    folder = PurePath(str(found.get("folder"))).name
    return {"model": folder.removeprefix(f"{name}-").rpartition("-seed")[0], "data": name}


def read_record(path: Path) -> Record:
    """What `scores.json` holds.

    Raises:
        CaptioningError: the file is damaged.
    """
    with _damage_named(path):
        return Record.model_validate_json(_content(path))


def read_history(path: Path) -> list[dict[str, float]]:
    """The rows of `metrics.csv` without empty fields, and without values that no axis can show.

    Raises:
        CaptioningError: the file is damaged.
    """
    with _damage_named(path):
        rows = csv.DictReader(io.StringIO(_content(path).decode("utf-8"), newline=""))
        if not rows.fieldnames:
            raise ValueError("it is empty")
        return [
            {name: number for name, value in row.items() if value and abs(number := float(value)) <= LARGEST}
            for row in rows
            if None not in row.values()  # a part of a row, which a killed run has left
        ]


def _content(path: Path) -> bytes:
    if not path.is_file():  # opening a pipe would wait for ever
        raise ValueError("it is no file")
    most = MOST_BYTES[path.name]
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return content


class _PlainLoader(yaml.SafeLoader):
    """Refuses what `captioning.run` never writes: tags, and aliases, with which a few lines stand for a gigabyte.

    It is slow, but the fast one of PyYAML ends the process where a file is nested too deeply.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None):
            raise ComposerError(None, None, "it has tags or aliases", event.start_mark)
        return super().compose_node(parent, index)


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _damaged(path, ": ".join([*map(str, first["loc"]), first["msg"]])) from error
    except RecursionError as error:
        raise _damaged(path, "it is nested too deeply") from error
    except OSError as error:
        raise _damaged(path, str(error.strerror)) from error
    except (ValueError, TypeError, csv.Error, yaml.YAMLError) as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, why: str) -> CaptioningError:
    shown = "".join(character if character.isprintable() else " " for character in why)
    return CaptioningError(f"cannot read {path}: {' '.join(shown.split()):.{QUOTED}}")
