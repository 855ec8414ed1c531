"""Folders of runs and evaluations: their names, how they appear, and their locks."""

import errno
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from captioning.errors import CaptioningError
from captioning.files import write_text
from captioning.machine import is_first

MAX_SWEPT = 100
"""Characters of a folder's name for swept values."""
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)
"""Answers of file systems without locks, such as those of some clusters."""


def run_folder(config: DictConfig) -> Path:
    """`<runs>/<name>-<model>-seed<seed>`, in sweeps with `-<setting>=<value>` for each further swept setting."""
    plain = plain_folder(config)
    return plain.with_name(plain.name + (_swept() if in_sweep() else ""))


def plain_folder(config: DictConfig) -> Path:
    """`<runs>/<name>-<model>-seed<seed>`."""
    return Path(config.runs) / f"{config.name}-{HydraConfig.get().runtime.choices['model']}-seed{config.seed}"


def in_sweep() -> bool:
    """Whether this is a job of a sweep, which resumes without being asked."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def _swept() -> str:
    """Swept values as a part of a file name; a long one is cut, with a digest to tell it apart."""
    given = str(HydraConfig.get().job.override_dirname)
    name = re.sub(r"[^\w.=+-]+", "_", given.replace("/", "."), flags=re.ASCII).strip("_")
    if len(name) > MAX_SWEPT:
        name = f"{name[: MAX_SWEPT - 9]}-{hashlib.sha256(given.encode()).hexdigest()[:8]}"
    return f"-{name}" if name else ""


def new_folder(config: DictConfig, base: Path, begin: Callable[[Path], None] | None = None) -> Path:
    """Make the folder `base`, numbered if that is taken, and set `config.folder`.

    It appears atomically with `config.yaml`, the resolved configuration and the overrides of the command line.

    Args:
        config: of a run or an evaluation.
        base: an empty folder there is taken.
        begin: writes further files into the folder.
    """
    numbered = (base.with_name(f"{base.name}-{number}") for number in itertools.count(2))
    overrides = yaml.safe_dump({"overrides": list(HydraConfig.get().overrides.task)}, allow_unicode=True)
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


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder while this process lives; rank 0 locks for all, if the file system can."""
    if not is_first():
        yield
        return
    path = folder / ".lock"
    held = FileLock(path)
    try:
        held.acquire(timeout=0)
    except Timeout as error:
        raise CaptioningError(f"another process is training in {folder}; wait for it, or stop it") from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held, so that whoever waits for it takes another file
        held.release()
