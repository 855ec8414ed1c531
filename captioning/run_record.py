"""`run.json` in a run folder: what the run is of, and how it ended. By it a sweep knows what is done already."""

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from captioning.data.example import Splits, digest
from captioning.errors import CaptioningError
from captioning.settings import each_setting, within

NAME = "run.json"
FREE = (
    *("folder", "runs", "cache", "resume", "logger"),
    *("data.num_workers", "metrics.timeout", "callbacks.progress_bar", "callbacks.wandb"),
)
"""Settings that may change when a run is resumed: they do not change its result."""


def digests(config: DictConfig, splits: Splits) -> dict[str, str]:
    """SHA-256 of `configuration` (resolved, without `FREE`), `code` and `data` (the examples).

    The code is that of this package, and of the modules that the configuration names, such as a model of the user's.
    """
    decisive = settings(config, Path())
    targets = [value for key, value in decisive.items() if key.rpartition(".")[2] == "_target_"]
    return {
        "configuration": _sha256(json.dumps(sorted(decisive.items()), default=str).encode()),
        "code": _code(targets),
        "data": digest(splits),
    }


def settings(config: DictConfig, folder: Path) -> dict[str, Any]:
    """The settings of the run that decide its result, by their keys, as they would be in `folder`."""
    named = config.copy()
    OmegaConf.update(named, "folder", str(folder))
    resolved = each_setting(OmegaConf.to_container(named, resolve=True))
    return {key: value for key, value in resolved if not within(key, FREE)}


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
    return _read(folder).get("result")


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


def _code(targets: Sequence[str]) -> str:
    package = Path(__file__).parent
    files = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    for module in filter(None, (inspect.getmodule(get_object(target)) for target in targets)):
        if source := inspect.getsourcefile(module):
            files[module.__name__] = Path(source)
    return _sha256(b"".join(repr((name, files[name].read_bytes())).encode() for name in sorted(files)))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
