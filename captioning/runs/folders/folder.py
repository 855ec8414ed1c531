"""Folders of runs and evaluations: their names, how they appear, and their locks."""

import errno
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from captioning.config.arguments import command_line, given_keys, search_path, split_options
from captioning.config.schemas.run import RunSettings
from captioning.errors import CaptioningError
from captioning.files import tidy, write_text
from captioning.machine import is_rank_zero
from captioning.runs.folders.choices import further
from captioning.runs.settings import FORMAT

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)
"""Answers of file systems without locks, such as those of some clusters."""


def plain_folder(settings: RunSettings) -> Path:
    """`<runs>/<name>-<model>-seed<seed>`."""
    return Path(settings.runs, f"{settings.name}-{settings.choices.model}-seed{settings.seed}")


def run_folder(settings: RunSettings) -> Path:
    """The plain folder, with `-<key>=<value>` for each further choice, and what it began from."""
    plain, choices = plain_folder(settings), dict(settings.choices.plain)
    if settings.init_from and "name" not in given_keys():
        choices.setdefault("init_from", Path(settings.init_from).stem)
    return plain.with_name(plain.name + further(choices))


def in_sweep() -> bool:
    """Tell whether this is a job of a sweep, which resumes without being asked."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def new_folder(config: DictConfig, base: Path, begin: Callable[[Path], None] | None = None) -> Path:
    """Make the folder `base`, numbered if that has content, and set `config.folder`.

    It appears atomically with `config.yaml`, the resolved configuration and the overrides of the
    command line; `begin` writes further files into it.
    """
    numbered = (base.with_name(f"{base.name}-{number}") for number in itertools.count(2))
    given = [*search_path(), *HydraConfig.get().overrides.task]
    stored = {"overrides": given, **_config_dir(), "format": FORMAT}
    overrides = yaml.safe_dump(stored, allow_unicode=True)
    base.parent.mkdir(parents=True, exist_ok=True)
    tidy(base.parent.absolute(), ".run-*")
    with TemporaryDirectory(prefix=".run-", dir=base.parent) as temporary:
        draft = Path(temporary, "run")
        draft.mkdir()  # with the user's usual permissions, unlike the folder around it
        if begin:
            begin(draft)
        for folder in itertools.chain([base], numbered):
            if folder.is_dir() and any(folder.iterdir()):
                continue
            config.folder = str(folder)
            write_text(draft / "config.yaml", OmegaConf.to_yaml(config, resolve=True) + overrides)
            try:
                return draft.rename(folder)  # replaces only an empty folder
            except OSError:
                if not os.path.lexists(folder):
                    raise
    raise AssertionError  # numbers do not end


def _config_dir() -> dict[str, str]:
    """The folder of `--config-dir`, if it was given, relative to the current one if it is below."""
    given = {}
    for source in HydraConfig.get().runtime.config_sources:
        if source.provider == "command-line":
            below = Path(source.path).is_relative_to(Path.cwd())
            given["config_dir"] = os.path.relpath(source.path) if below else source.path
    return given


def resume_command(folder: str) -> str:
    """The command of this process with `resume=FOLDER`, to paste into a shell."""
    settings, options = split_options(sys.argv[1:])
    others = [setting for setting in settings if not setting.startswith("resume=")]
    return command_line([*others, f"resume={folder}", *options])


def is_being_written(folder: Path) -> bool:
    """Tell whether a process trains in a folder; the lock of a dead one is removed."""
    if not (folder / ".lock").exists():
        return False
    try:
        with lock(folder):
            return False
    except (CaptioningError, OSError):  # or somebody else's folder, in which nothing can be written
        return True


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
        # While it is held, so that whoever waits for it takes another file.
        path.unlink(missing_ok=True)
        held.release()
