"""`run.json` in a run folder: what the run is of, and how it ended. By it a sweep knows what is done already."""

import functools
import hashlib
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from captioning.backbones import Backbone
from captioning.config.settings import each_setting, moved, within
from captioning.data.example import Splits, digest
from captioning.errors import CaptioningError

NAME = "run.json"
PLACES = ("folder", "cache", "data.root")
"""Where things lie; digests tell whether they are the same things."""
FREE = (
    *(*PLACES, "runs", "backbone.weights", "resume", "logger"),
    *("data.num_workers", "metrics.timeout", "callbacks.progress_bar", "callbacks.wandb"),
)
"""Settings that may change when a run is resumed: they do not change its result."""
NOT_OF_RUNS = {"benchmark", "download", "report"}
"""Sub-packages that no result depends on."""


def digests(config: DictConfig, splits: Splits, backbone: Backbone) -> dict[str, str]:
    """SHA-256 of what decides a run's result.

    They are of the `configuration` (resolved, without `FREE`), the `code`, the `data` (ids, file names and captions),
    and the `backbone` (architecture and weights before training). The code is that of this package when the process
    started, and of the modules that the configuration names, such as a model of the user's.
    """
    decisive = settings(config)
    targets = [value for key, value in decisive.items() if key.rpartition(".")[2] == "_target_"]
    return {
        "configuration": _sha256(json.dumps(sorted(decisive.items()), default=str).encode()),
        "code": _sha256("".join([_PACKAGE, *map(_source, sorted(targets))]).encode()),
        "data": digest(splits),
        "backbone": backbone.digest,
    }


def settings(config: DictConfig) -> dict[str, Any]:
    """The settings of a run that decide its result, by their keys, wherever its files lie."""
    resolved = OmegaConf.to_container(config, resolve=True)
    for place in PLACES:
        if (path := OmegaConf.select(config, place)) is not None:
            resolved = moved(resolved, str(path), place)
    return {key: value for key, value in each_setting(resolved) if not within(key, FREE)}


def begin(folder: Path, made_of: Mapping[str, str]) -> None:
    """Leaves the digests of a run that begins."""
    _write(folder, {"digests": dict(made_of)})


def end(folder: Path, result: Mapping[str, Any]) -> None:
    """Notes that the run has ended, and with what."""
    _write(folder, {**_read(folder), "result": dict(result)})


def made_of(folder: Path) -> dict[str, str]:
    """The digests of a run; empty for one that an earlier version has left.

    Raises:
        CaptioningError: the file is damaged.
    """
    return _read(folder).get("digests", {})


def result(folder: Path) -> dict[str, Any] | None:
    """What the run has ended with; None for one that has not.

    Raises:
        CaptioningError: the file is damaged.
    """
    record = _read(folder)
    if not record and (folder / "scores.json").exists():  # of an earlier version, which left no such file
        return {"best": None}
    return record.get("result")


def _read(folder: Path) -> dict[str, Any]:
    path = folder / NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise CaptioningError(f"{path} is damaged ({error}): move its folder away, and the run begins anew") from error
    return dict(found)


def _write(folder: Path, record: Mapping[str, Any]) -> None:
    part = folder / f"{NAME}.part"
    part.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    part.replace(folder / NAME)


@functools.cache
def _source(target: str) -> str:
    """Of the module that defines what `target` names, as it was when first asked for."""
    module = inspect.getmodule(get_object(target))
    try:
        return "" if module is None else inspect.getsource(module)
    except (OSError, TypeError):  # built in, or compiled
        return ""


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _package() -> str:
    package = Path(__file__).parents[1]
    files = (path for path in sorted(package.rglob("*.py")) if path.relative_to(package).parts[0] not in NOT_OF_RUNS)
    return _sha256(b"".join(repr((path.relative_to(package).as_posix(), path.read_bytes())).encode() for path in files))


_PACKAGE = _package()  # now: a later change of the files does not change what this process runs
