"""Download a data set: `captioning download data=flickr8k root=FOLDER`."""

from typing import Any

from hydra.core.hydra_config import HydraConfig
from pydantic import model_validator

from captioning.config.command import command, start
from captioning.config.registry import CONF
from captioning.config.settings import Settings
from captioning.download.data_set import DownloadedDataSet

SOURCES = CONF / "download"  # a root of its own: in `conf` itself `data` is what a run reads


class DownloadSettings(Settings, DownloadedDataSet):
    """Settings of `captioning download`."""

    @model_validator(mode="before")
    @classmethod
    def _is_chosen(cls, settings: Any) -> Any:
        if settings.get("data") is None:
            names = sorted(path.stem for path in (SOURCES / "data").glob("[!_]*.yaml"))
            raise ValueError(
                f"data is not set and has no default: add data=NAME, one of {', '.join(names)}"
            )
        return settings


@command(SOURCES / "download.yaml", DownloadSettings)
def main(data_set: DownloadSettings) -> None:
    """Download and unpack; print how to train on the data set."""
    count, source = data_set.download(), data_set.data
    print(f"{count:,} photographs of {source.splits} are in {data_set.folder / source.photographs}")
    print(
        f"captioning run data={HydraConfig.get().runtime.choices['data']} "
        f"data.root={data_set.folder}"
    )


if __name__ == "__main__":
    start(main)
