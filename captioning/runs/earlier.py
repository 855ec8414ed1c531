"""Finds the earlier run of a configuration, and the point from which it goes on."""

import contextlib
import glob
import logging
from collections.abc import Mapping
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from captioning.config.settings import read_settings
from captioning.errors import CaptioningError
from captioning.runs.checkpoint import compare, read
from captioning.runs.checkpoint_files import PREVIOUS
from captioning.runs.folder import in_sweep, plain_folder, run_folder
from captioning.runs.record import recorded_digests, result, settings

NAMED = 3
"""Settings that an error shows."""

log = logging.getLogger(__name__)


def earlier_run(config: DictConfig, digests: Mapping[str, str]) -> Path | None:
    """The run folder with the same digests, one that has ended rather than one that was interrupted; None: a new run.

    Looked for where `config.resume` says so, and in sweeps. Without such a folder a job of a sweep is a new run. A
    single run was to go on, so what differs from the latest folder is said: other settings or data are refused, and
    another version of the code is warned of.

    Args:
        config: of the run.
        digests: as in `captioning.runs.record`.

    Raises:
        CaptioningError: names the settings that differ, or the data.
    """
    sweep = in_sweep()
    if not (sweep if config.resume is None else config.resume):
        return None
    # whatever else was swept when it began
    plain = plain_folder(config)
    every = [path.parent for path in sorted(plain.parent.glob(f"{glob.escape(plain.name)}*/config.yaml"))]
    folders = _numbered(run_folder(config))
    same = [folder for folder in dict.fromkeys([*folders, *every]) if recorded_digests(folder) == digests]
    if same:
        return next((folder for folder in same if result(folder) is not None), same[0])
    if sweep or not folders:
        if any(recorded_digests(folder).get("configuration") == digests["configuration"] for folder in folders):
            log.info("code, data or backbone have changed since the run of these settings: a new one begins")
        return None
    latest = folders[0]
    _check_settings(config, latest)
    if recorded_digests(latest).get("data", digests["data"]) != digests["data"]:
        raise CaptioningError(
            f"resume=true goes on with {latest} as it began, but its data were others. Bring them back, or start a new "
            "run with resume=false"
        )
    if recorded_digests(latest).get("init_from") != digests.get("init_from"):
        raise CaptioningError(
            f"resume=true goes on with {latest} as it began, but it began from other weights (init_from). Bring them "
            "back, or start a new run with resume=false"
        )
    if result(latest) is None:
        log.warning("code or backbone have changed since %s began: its result will belong to neither", latest)
    return latest


def _numbered(base: Path) -> list[Path]:
    """The run folders among `base`, `base-2`, `base-3`, ..., the latest first."""
    folders = {1: base} if (base / "config.yaml").exists() else {}
    for path in base.parent.glob(f"{glob.escape(base.name)}-*"):
        number = path.name.removeprefix(f"{base.name}-")
        if number.isdigit() and (path / "config.yaml").exists():
            folders[int(number)] = path
    return [folders[number] for number in sorted(folders, reverse=True)]


def _check_settings(config: DictConfig, folder: Path) -> None:
    named = config.copy()
    OmegaConf.update(named, "folder", str(folder))
    before = settings(read_settings(folder / "config.yaml"))
    now = settings(OmegaConf.to_container(named, resolve=True))  # type: ignore[arg-type]
    differing = [
        f"{key}={now.get(key, 'nothing')} (it has {before.get(key, 'nothing')})"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key)
    ]
    if differing:
        more = ", ..." if len(differing) > NAMED else ""
        raise CaptioningError(
            f"resume=true goes on with {folder} as it began, but came with {', '.join(differing[:NAMED])}{more}. "
            "Give the same settings again, or start a new run with resume=false"
        )


def resume_point(folder: Path, state: Mapping[str, Tensor]) -> Path | None:
    """The latest whole checkpoint to go on from; None where the run was interrupted before the first.

    A damaged one gets another name, so that it never takes the place of a whole one.

    Args:
        folder: of the run.
        state: what a checkpoint of this version holds.

    Raises:
        CaptioningError: there are some, and all are damaged; or they are of another version's layout.
    """
    found = [path for name in ("last.ckpt", PREVIOUS) if (path := folder / "checkpoints" / name).exists()]
    for path in found:
        try:
            saved = read(path)["state_dict"]
        except CaptioningError as error:
            log.warning("%s; it is kept as %s", error, path.with_suffix(".damaged").name)
            with contextlib.suppress(FileNotFoundError):  # another process of the same run was faster
                path.rename(path.with_suffix(".damaged"))
        else:
            compare(path, state, saved)
            return path
    if found:
        raise CaptioningError(f"no checkpoint in {folder} can be read; start a new run with resume=false")
    return None
