"""Download a data set: `captioning download data=flickr8k root=FOLDER`."""

from hydra.core.hydra_config import HydraConfig

from captioning.config.command import command, start
from captioning.download.data_set import SOURCES, DownloadedDataSet


@command(SOURCES / "download.yaml", DownloadedDataSet)
def main(data_set: DownloadedDataSet) -> None:
    """Download and unpack; print how to train on the data set."""
    count, source = data_set.download(), data_set.data
    print(f"{count:,} photographs of {source.splits} are in {data_set.root / source.photographs}")
    print(
        f"captioning run data={HydraConfig.get().runtime.choices['data']} data.root={data_set.root}"
    )


if __name__ == "__main__":
    start(main)
