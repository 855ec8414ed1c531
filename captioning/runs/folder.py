"""The folder of a run or an evaluation, never an earlier one's; of several processes rank 0 alone makes it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from captioning.errors import CaptioningError
from captioning.machine import is_first


def run_folder(config: DictConfig) -> Path:
    """`<runs>/<name>-<model>-seed<seed>`, which the folder of a run is called, with or without a number behind it."""
    return Path(config.runs) / f"{config.name}-{HydraConfig.get().runtime.choices['model']}-seed{config.seed}"


def new_folder(config: DictConfig, base: Path) -> Path:
    """Makes `base`, with a number behind it where that exists, and sets `config.folder`.

    Writes the resolved configuration as `config.yaml`.

    Raises:
        CaptioningError: the folder cannot be made.
    """
    folder = _make_folder(base)
    OmegaConf.update(config, "folder", str(folder))
    OmegaConf.save(OmegaConf.create(OmegaConf.to_container(config, resolve=True)), folder / "config.yaml")
    return folder


NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems without locks answer, as some of clusters."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keeps other runs out of a folder that they would go on with, for as long as this process lives.

    Processes other than rank 0 write nothing and hold nothing; nor is anything held where the system has no locks.

    Raises:
        CaptioningError: another process holds it.
    """
    try:
        import fcntl  # here, because Windows has none
    except ImportError:
        fcntl = None  # type: ignore[assignment]
    if fcntl is None or not is_first():
        yield
        return
    path = folder / ".held"
    with path.open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise CaptioningError(
                    f"{folder} is the folder of a run that is under way; wait for it, or end it"
                ) from error
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _make_folder(base: Path) -> Path:
    folder, number = base, 1
    while True:
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1
            folder = base.with_name(f"{base.name}-{number}")
        except OSError as error:
            raise CaptioningError(f"cannot make the run folder {folder}: {error.strerror}; set runs=FOLDER") from error
