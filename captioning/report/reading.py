"""The files of a run folder, read as data of a stranger's: bounded, checked, and named where they are damaged."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StringConstraints,
    ValidationError,
)

from captioning.config.settings import decisive_settings, read_settings
from captioning.errors import CaptioningError, quoted
from captioning.files import read_state

ADVICE = "bring it back from a copy, or leave its folder out"
LARGEST = 1e100
"""Of logged values: beyond it axes cannot be scaled."""

Line = Annotated[str, StringConstraints(pattern=r"^\P{C}*$", max_length=200)]
"""Text that is printed as it is: no line breaks, no control characters, no halves of characters."""
Score = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]


class Choices(BaseModel):
    """What a run's system, data set and experiment are called; earlier versions have not recorded the last."""

    model: Annotated[Line, Field(min_length=1)]
    data: Line
    experiment: Annotated[Line | None, BeforeValidator(lambda name: "null" if name is None else name)] = None


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
    images_tested: Annotated[int, Field(ge=1)] | None = None
    images_of_split: Annotated[int, Field(ge=1)] | None = None
    parameters: dict[Line, Annotated[int, Field(ge=0, le=10**15)]] = {}
    seconds_to_best: Score | None = None
    seconds_trained: Score | None = None
    device: Line = "?"
    commit: Line | None = None
    precision: Line | None = None
    tokenizer: Line | None = None
    versions: dict[Line, Line] = {}
    decoding: dict[Line, Any] = {}


class Record(BaseModel):
    """`scores.json`; a score that is null could not be computed, and of `views` an evaluation of several has more."""

    model_config = ConfigDict(strict=True)

    scores: dict[Line, Score | None]
    views: dict[Line, dict[Line, Score | None]] = {}
    provenance: Provenance


def read_config(path: Path) -> Config | None:
    """What `config.yaml` holds, as plain values: nothing in it is resolved, imported or called.

    Returns:
        None if it is not that of a run, but an evaluation's or another program's.

    Raises:
        CaptioningError: the file is damaged.
    """
    found = read_settings(path)
    if "model" not in found:
        return None
    found.setdefault("choices", _choices(found))
    try:
        return Config.model_validate(found | {"settings": settings_as_text(found)})
    except ValidationError as error:
        raise CaptioningError(f"{path} is not as a run leaves it: {quoted(error)}") from error


def settings_as_text(config: Mapping[str, Any]) -> dict[str, str]:
    """What of a resolved configuration may change a result, by its keys."""
    return {key: repr(value) for key, value in decisive_settings(config).items()}


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
    return read_state(path, Record.model_validate_json, ADVICE, 2**20)


def read_history(path: Path) -> list[dict[str, float]]:
    """The rows of `metrics.csv` without empty fields, and without values that no axis can show.

    Raises:
        CaptioningError: the file is damaged.
    """
    return read_state(path, _rows, ADVICE)


def _rows(content: str) -> list[dict[str, float]]:
    rows = csv.DictReader(io.StringIO(content, newline=""))
    if not rows.fieldnames:
        raise ValueError("it is empty")
    return [
        {name: number for name, value in row.items() if value and abs(number := float(value)) <= LARGEST}
        for row in rows
        if None not in row.values()  # a part of a row, which a killed run has left
    ]
