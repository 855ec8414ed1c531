"""`run.json` in a run folder: what the run is of, and how it ended. By it a sweep knows what is done already."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel

from captioning.backbones import Backbone
from captioning.config.settings import decisive_settings, targets
from captioning.data.example import Splits, digest
from captioning.files import read_state, write_json
from captioning.runs.code_digest import code_digest
from captioning.runs.initial import InitialWeights

NAME = "run.json"
WEIGHTS = re.compile(r"backbone\.(.+\.)?weights|init_from")
"""Settings that digests stand for: the same weights may lie in another file."""


class Result(BaseModel, extra="allow"):
    """How a run has ended; `best` is the validation score of what was tested, None without validation."""

    best: float | None


class Record(BaseModel):
    """Contents of `run.json`; an early version has left neither digests nor precision."""

    digests: dict[str, str] = {}
    precision: str | None = None
    result: Result | None = None


def digests(
    config: DictConfig, splits: Splits, backbone: Backbone, initial: InitialWeights | None = None
) -> dict[str, str]:
    """SHA-256 of what decides a run's result.

    They are of the `configuration` (what decides of it), the `code` that it reaches, the `data` (ids, file names and
    captions), the `backbone` (architecture and weights before training), and the weights that it begins from, if any.
    """
    decisive = settings(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]
    return {
        "configuration": hashlib.sha256(json.dumps(sorted(decisive.items()), default=str).encode()).hexdigest(),
        "code": code_digest(targets(decisive)),
        "data": digest(splits),
        "backbone": backbone.digest,
        **({} if initial is None else {"init_from": initial.digest}),
    }


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a resolved configuration that decide a run's result where no digest does."""
    return {key: value for key, value in decisive_settings(config).items() if not WEIGHTS.fullmatch(key)}


def begin(folder: Path, digests: Mapping[str, str], precision: str) -> None:
    """Leaves the digests of a run that begins, and what `trainer.precision=auto` is on its machine."""
    write_json(folder / NAME, {"digests": dict(digests), "precision": precision})


def end(folder: Path, result: Mapping[str, Any]) -> None:
    """Notes that the run has ended, and with what."""
    write_json(folder / NAME, _read(folder).model_dump(exclude={"result"}) | {"result": dict(result)})


def recorded_digests(folder: Path) -> dict[str, str]:
    """The digests of a run; empty for one that an earlier version has left.

    Raises:
        CaptioningError: the file is damaged.
    """
    return _read(folder).digests


def recorded_precision(folder: Path) -> str | None:
    """The precision with which a run began; None for one that an earlier version has left.

    Raises:
        CaptioningError: the file is damaged.
    """
    return _read(folder).precision


def result(folder: Path) -> dict[str, Any] | None:
    """What the run has ended with; None for one that has not.

    Raises:
        CaptioningError: the file is damaged.
    """
    if not (folder / NAME).exists() and (folder / "scores.json").exists():  # of an earlier version, which left none
        return {"best": None}
    ended = _read(folder).result
    return None if ended is None else ended.model_dump()


def _read(folder: Path) -> Record:
    path = folder / NAME
    if not path.exists():
        return Record()
    return read_state(path, Record.model_validate_json, "move its folder away, and the run begins anew")
