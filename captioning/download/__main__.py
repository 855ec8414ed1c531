"""Brings a data set to this machine: `python -m captioning.download data=flickr8k root=FOLDER`."""

from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from captioning.config.command import command, start
from captioning.config.registry import CONF, check_arguments
from captioning.config.types import check_value
from captioning.download.data_set import DataSet
from captioning.errors import CaptioningError
from captioning.transfer.archive import Archive
from captioning.transfer.fetch import Connection

SOURCES = CONF / "download"
"""A root of its own: in `conf` itself `data` is what a run reads, not where it comes from."""


@command(SOURCES / "download.yaml")
def main(config: DictConfig) -> None:
    """Downloads, unpacks and counts; prints how to train on it."""
    data_set, connection = check(config)
    photographs = data_set.bring(connection)
    print(f"{photographs:,} photographs that {data_set.splits} names are in {data_set.root / data_set.photographs}")
    name = HydraConfig.get().runtime.choices["data"]
    print(f"python -m captioning.run data={name} data.root={data_set.root}")


def check(config: DictConfig) -> tuple[DataSet, Connection]:
    """What the configuration names, before anything is downloaded.

    Raises:
        CaptioningError: a setting is not set, of the wrong kind or not allowed.
    """
    if config.get("data") is None:
        names = sorted(path.stem for path in (SOURCES / "data").glob("[!_]*.yaml"))
        raise CaptioningError(f"data is not set and has no default: add data=NAME, one of {', '.join(names)}")
    settings: dict[str, Any] = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)  # type: ignore[assignment]
    if settings["root"] in (None, ""):
        raise CaptioningError(f"root={settings['root']} is not allowed; it must be a folder")
    data, keep_archives = settings["data"], settings["keep_archives"]
    check_arguments("data", DataSet, {name: value for name, value in data.items() if name != "archives"})
    check_value("data.archives", data.get("archives"), dict[str, Any])
    check_arguments("", DataSet, {"keep_archives": keep_archives})
    check_arguments("connection", Connection, settings["connection"])
    archives = {key: _archive(key, archive) for key, archive in data["archives"].items()}
    root = Path(str(settings["root"])).expanduser()
    data_set = DataSet(root, archives, data["photographs"], data["splits"], keep_archives)
    return data_set, Connection(**settings["connection"])


def _archive(key: str, settings: Any) -> Archive:
    path = f"data.archives.{key}"
    if not isinstance(settings, dict) or not {"url", "members"} <= settings.keys():
        raise CaptioningError(f"{path} needs url and members; ~{path} leaves the archive out")
    check_arguments(path, Archive, settings)
    try:
        return Archive(**settings)
    except CaptioningError as error:
        raise CaptioningError(f"{path}.{error}") from error


if __name__ == "__main__":
    start(main)
