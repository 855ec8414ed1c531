"""Download a data set: `captioning download data=flickr8k root=FOLDER`."""

from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from captioning.config.command import command, start
from captioning.config.registry import CONF
from captioning.config.settings import Settings
from captioning.config.types import PathText
from captioning.download.data_set import DataSet
from captioning.errors import CaptioningError

SOURCES = CONF / "download"  # a root of its own: in `conf` itself `data` is what a run reads


class ConnectionSettings(Settings):
    """Settings below `connection`."""

    timeout: Any
    """seconds of silence after which a connection counts as lost"""
    retries: Any
    """in a row, without a byte in between"""
    backoff: Any
    """seconds before the first of them, twice as many before each next"""


class DownloadSettings(Settings):
    """Settings of `captioning download`; `DataSet` judges them."""

    root: PathText
    """the folder that captioning.run is given as data.root"""
    keep_archives: Any
    """true: archives stay after they were unpacked"""
    connection: ConnectionSettings


@command(SOURCES / "download.yaml", DownloadSettings)
def main(config: DictConfig) -> None:
    """Download and unpack; print how to train on the data set."""
    if config.get("data") is None:
        names = sorted(path.stem for path in (SOURCES / "data").glob("[!_]*.yaml"))
        raise CaptioningError(
            f"data is not set and has no default: add data=NAME, one of {', '.join(names)}"
        )
    data_set = DataSet.model_validate(
        OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    )
    count, source = data_set.download(), data_set.data
    print(f"{count:,} photographs of {source.splits} are in {data_set.folder / source.photographs}")
    print(
        f"captioning run data={HydraConfig.get().runtime.choices['data']} "
        f"data.root={data_set.folder}"
    )


if __name__ == "__main__":
    start(main)
