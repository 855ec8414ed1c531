"""Folders of runs and evaluations: their names, how they appear, and their locks."""

import errno
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from captioning.errors import CaptioningError, listed
from captioning.files import write_text
from captioning.machine import is_rank_zero
from captioning.runs.choices import further
from captioning.runs.settings import FORMAT

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)
"""Answers of file systems without locks, such as those of some clusters."""


def plain_folder(config: DictConfig) -> Path:
    """`<runs>/<name>-<model>-seed<seed>`."""
    return Path(config.runs) / f"{config.name}-{config.choices.model}-seed{config.seed}"


def run_folder(config: DictConfig) -> Path:
    """The plain folder, with `-<key>=<value>` for each further choice."""
    plain = plain_folder(config)
    return plain.with_name(plain.name + further(config.choices))


def in_sweep() -> bool:
    """Tell whether this is a job of a sweep, which resumes without being asked."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def new_folder(config: DictConfig, base: Path, begin: Callable[[Path], None] | None = None) -> Path:
    """Make the folder `base`, numbered if that has content, and set `config.folder`.

    It appears atomically with `config.yaml`, the resolved configuration and the overrides of the
    command line; `begin` writes further files into it.
    """
    numbered = (base.with_name(f"{base.name}-{number}") for number in itertools.count(2))
    given = {"overrides": list(HydraConfig.get().overrides.task), "format": FORMAT}
    overrides = yaml.safe_dump(given, allow_unicode=True)
    base.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".run-", dir=base.parent) as temporary:
        draft = Path(temporary, "run")
        draft.mkdir()  # with the user's usual permissions, unlike the folder around it
        if begin is not None:
            begin(draft)
        for folder in itertools.chain([base], numbered):
            if folder.is_dir() and any(folder.iterdir()):
                continue
            OmegaConf.update(config, "folder", str(folder))
            write_text(draft / "config.yaml", OmegaConf.to_yaml(config, resolve=True) + overrides)
            try:
                return draft.rename(folder)  # replaces only an empty folder
            except OSError:
                if not os.path.lexists(folder):
                    raise
    raise AssertionError  # numbers do not end


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Settings that differ, the first few; empty if none does."""
    both = [
        (key, before.get(key, "nothing"), now.get(key, "nothing"))
        for key in sorted(before.keys() | now.keys())
    ]
    differing = [f"{key}={new} (it has {old})" for key, old, new in both if old != new]
    return listed(differing)


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Lock a folder for this run on rank 0, if the file system supports locks."""
    if not is_rank_zero():
        yield
        return
    path = folder / ".lock"
    held = FileLock(path)
    try:
        held.acquire(timeout=0)
    except Timeout as error:
        raise CaptioningError(
            f"another process is training in {folder}; wait for it, or stop it"
        ) from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    try:
        yield
    finally:
        # while it is held, so that whoever waits for it takes another file
        path.unlink(missing_ok=True)
        held.release()
