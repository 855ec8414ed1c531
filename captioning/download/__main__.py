"""Download a data set: `python -m captioning.download data=flickr8k root=FOLDER`."""

from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel

from captioning.config.command import command, start
from captioning.config.registry import CONF
from captioning.config.types import PathText
from captioning.download.data_set import DataSet, Source
from captioning.errors import CaptioningError
from captioning.transfer.fetch import STRICT, Connection

SOURCES = CONF / "download"  # a root of its own: in `conf` itself `data` is what a run reads


class Settings(BaseModel):
    """Settings of the command."""

    model_config = STRICT
    data: Source
    root: PathText
    keep_archives: bool
    connection: Connection


@command(SOURCES / "download.yaml")
def main(config: DictConfig) -> None:
    """Download and unpack; print how to train on the data set."""
    if config.get("data") is None:
        names = sorted(path.stem for path in (SOURCES / "data").glob("[!_]*.yaml"))
        raise CaptioningError(f"data is not set and has no default: add data=NAME, one of {', '.join(names)}")
    settings = Settings.model_validate(OmegaConf.to_container(config, resolve=True, throw_on_missing=True))
    data_set = DataSet(Path(settings.root).expanduser(), settings.data, settings.keep_archives)
    photographs = data_set.download(settings.connection)
    print(f"{photographs:,} photographs of {settings.data.splits} are in {data_set.root / settings.data.photographs}")
    print(f"python -m captioning.run data={HydraConfig.get().runtime.choices['data']} data.root={data_set.root}")


if __name__ == "__main__":
    start(main)
