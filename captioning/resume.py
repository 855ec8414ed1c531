"""Finds the interrupted run of a configuration, and the point from which it goes on."""

import contextlib
import glob
import logging
from collections.abc import Mapping
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from captioning.checkpoint import compare, read
from captioning.checkpoint_files import PREVIOUS
from captioning.errors import CaptioningError
from captioning.settings import each_setting, within

FREE = ("folder", "resume", "logger", "callbacks.wandb", "data.num_workers", "metrics.timeout")
"""Settings that may change when a run is resumed: they do not change its result."""
NAMED = 3
"""Settings that an error shows."""

log = logging.getLogger(__name__)


def latest_run(base: Path) -> Path | None:
    """The run folder of the highest number among `base`, `base-2`, `base-3`, ..., or None."""
    folders = {1: base} if (base / "config.yaml").exists() else {}
    for path in base.parent.glob(f"{glob.escape(base.name)}-*"):
        number = path.name.removeprefix(f"{base.name}-")
        if number.isdigit() and (path / "config.yaml").exists():
            folders[int(number)] = path
    return folders[max(folders)] if folders else None


def check_same(config: DictConfig, folder: Path) -> None:
    """Refuses to go on with other settings than the run in `folder` began with.

    Raises:
        CaptioningError: names the settings that differ.
    """
    before = dict(each_setting(OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))))
    named = config.copy()
    OmegaConf.update(named, "folder", str(folder))
    now = dict(each_setting(OmegaConf.to_container(named, resolve=True)))
    differing = [
        f"{key}={now.get(key, 'nothing')} (it has {before.get(key, 'nothing')})"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and not within(key, FREE)
    ]
    if differing:
        more = ", ..." if len(differing) > NAMED else ""
        raise CaptioningError(
            f"resume=true goes on with {folder} as it began, but came with {', '.join(differing[:NAMED])}{more}. "
            "Give the same settings again, or start a new run without resume=true"
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
        raise CaptioningError(f"no checkpoint in {folder} can be read; start a new run without resume=true")
    return None
