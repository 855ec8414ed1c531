"""The folder of a run or an evaluation, never an earlier one's; of several processes rank 0 alone makes it."""

from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from captioning.errors import CaptioningError
from captioning.processes import is_first
from captioning.resume import check_same, latest_run


def make_run_folder(config: DictConfig) -> Path:
    """Makes `<runs>/<name>-<model>-seed<seed>`, with a number behind it where that exists, and sets `config.folder`.

    With `config.resume` it is the latest such folder, if there is one, and nothing is made. Otherwise writes the
    resolved configuration as `config.yaml`. Processes other than rank 0 write nothing, now or later, and need not know
    the number of a new folder: theirs is the name without it.

    Raises:
        CaptioningError: the folder cannot be made, or the run to resume has other settings.
    """
    name = f"{config.name}-{HydraConfig.get().runtime.choices['model']}-seed{config.seed}"
    base = Path(config.runs) / name
    interrupted = latest_run(base) if config.resume else None
    if interrupted is not None:
        check_same(config, interrupted)
    elif is_first():
        return new_folder(config, name)
    folder = interrupted or base
    OmegaConf.update(config, "folder", str(folder))
    return folder


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
