"""The folder of a run or an evaluation, never an earlier one's."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from captioning.errors import CaptioningError
from captioning.resume import check_same, latest_run

_SHARED = "CAPTIONING_RUN_FOLDER"


@contextmanager
def make_run_folder(config: DictConfig) -> Iterator[Path]:
    """Makes `<runs>/<name>-<model>-seed<seed>`, with a number behind it where that exists, and sets `config.folder`.

    With `config.resume` it is the latest such folder, if there is one, and nothing is made.

    The other processes of the same run, which Lightning starts with this one's environment, get the same folder.
    Writes the resolved configuration as `config.yaml`.

    Raises:
        CaptioningError: the folder cannot be made, or the run to resume has other settings.
    """
    shared = os.environ.get(_SHARED)
    if shared:
        folder = Path(shared)
        OmegaConf.update(config, "folder", shared)
    else:
        model = HydraConfig.get().runtime.choices["model"]
        name = f"{config.name}-{model}-seed{config.seed}"
        interrupted = latest_run(Path(config.runs) / name) if config.resume else None
        if interrupted is None:
            folder = new_folder(config, name)
        else:
            check_same(config, interrupted)
            OmegaConf.update(config, "folder", str(interrupted))
            folder = interrupted
        os.environ[_SHARED] = str(folder)
    try:
        yield folder
    finally:
        if not shared:
            del os.environ[_SHARED]


def new_folder(config: DictConfig, name: str) -> Path:
    """Makes `<runs>/<name>`, with a number behind it where that exists, and sets `config.folder`.

    Writes the resolved configuration as `config.yaml`.

    Raises:
        CaptioningError: the folder cannot be made.
    """
    folder = _make_folder(Path(config.runs) / name)
    OmegaConf.update(config, "folder", str(folder))
    OmegaConf.save(OmegaConf.create(OmegaConf.to_container(config, resolve=True)), folder / "config.yaml")
    return folder


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
