"""The folder of a run or an evaluation, never an earlier one's; of several processes rank 0 alone makes it."""

import errno
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from captioning.errors import CaptioningError
from captioning.files import write_text
from captioning.machine import is_first

LONGEST = 100
"""Characters by which a folder tells the swept values."""


def run_folder(config: DictConfig) -> Path:
    """`<runs>/<name>-<model>-seed<seed>`, which the folder of a run is called, with or without a number behind it.

    In a sweep `-<setting>=<value>` follows for each of its further settings (see `captioning.runs.jobs`).
    """
    swept = _swept() if in_sweep() else ""
    return plain_folder(config).with_name(plain_folder(config).name + swept)


def plain_folder(config: DictConfig) -> Path:
    """`<runs>/<name>-<model>-seed<seed>`, with which the folder of a run begins."""
    return Path(config.runs) / f"{config.name}-{HydraConfig.get().runtime.choices['model']}-seed{config.seed}"


def in_sweep() -> bool:
    """Tell whether this is a job of a sweep, which goes on without being asked."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def _swept() -> str:
    """The swept values as a part of a file's name, which is cut where it is long and told apart by a digest."""
    given = str(HydraConfig.get().job.override_dirname)
    name = re.sub(r"[^\w.=+-]+", "_", given.replace("/", "."), flags=re.ASCII).strip("_")
    if len(name) > LONGEST:
        name = f"{name[: LONGEST - 9]}-{hashlib.sha256(given.encode()).hexdigest()[:8]}"
    return f"-{name}" if name else ""


def new_folder(config: DictConfig, base: Path, begin: Callable[[Path], None] | None = None) -> Path:
    """Makes `base`, with a number behind it where something lies there, and sets `config.folder`.

    The folder appears with the resolved configuration in it as `config.yaml`, or not at all, whenever it is stopped.

    Args:
        config: of the run.
        base: the folder's path; an empty folder there is taken.
        begin: writes further files into the folder that it is given.

    Raises:
        CaptioningError: the folder cannot be made, or not be written to.
    """
    numbered = (base.with_name(f"{base.name}-{number}") for number in itertools.count(2))
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".run-", dir=base.parent) as place:
            draft = Path(place, "run")
            draft.mkdir()  # readable for others as the user has it, unlike the folder around it
            if begin is not None:
                begin(draft)
            for folder in itertools.chain([base], numbered):
                if folder.is_dir() and any(folder.iterdir()):
                    continue
                OmegaConf.update(config, "folder", str(folder))
                write_text(draft / "config.yaml", OmegaConf.to_yaml(config, resolve=True))
                try:
                    return draft.rename(folder)  # replaces an empty folder alone
                except OSError:
                    if not os.path.lexists(folder):
                        raise
    except OSError as error:
        raise CaptioningError(f"cannot make the run folder {base}: {error.strerror}; set runs=FOLDER") from error
    raise AssertionError  # numbers have no end


NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)
"""What file systems without locks answer, as some of clusters."""


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keeps other runs out of a folder that they would go on with, for as long as this process lives.

    Processes other than rank 0 write nothing and lock nothing; nor is anything locked where the file system cannot.

    Raises:
        CaptioningError: another process holds it, or it cannot be written to.
    """
    if not is_first():
        yield
        return
    path = folder / ".lock"
    held = FileLock(path)
    try:
        held.acquire(timeout=0)
    except Timeout as error:
        raise CaptioningError(f"{folder} is the folder of a run that is under way; wait for it, or end it") from error
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise CaptioningError(
                f"cannot write to {folder}: {error.strerror}. A run goes on in its own folder: let it be written to, "
                "or start a new run with resume=false and runs=FOLDER"
            ) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: who waits for it takes another file
        held.release()
