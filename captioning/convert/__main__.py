"""Make a checkpoint of another project's: `captioning convert source=NAME weights=FILE ...`.

The folder has the checkpoint, for every command that takes one, and the settings that were found.
Nothing that the files name is run.
"""

import shlex
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import yaml
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf, open_dict

from captioning.config.command import command, composition, start
from captioning.config.registry import CONF, validate_arguments
from captioning.config.settings import Settings
from captioning.config.types import Config, Count, GivenPath
from captioning.errors import CaptioningError, did_you_mean, quoted
from captioning.files import atomic_folder, write_text
from captioning.runs.provenance import file_record

if TYPE_CHECKING:
    from captioning.convert.source import Converted

SOURCES = [module.name for module in iter_modules([str(Path(__file__).parent / "sources")])]


class ConvertSettings(Settings):
    """Settings of `captioning convert`."""

    source: str
    """name of the project, such as self_critical; an unknown one lists them"""
    weights: GivenPath
    """its checkpoint"""
    vocabulary: GivenPath
    """its words, in the file or folder that the project keeps them in"""
    output: GivenPath
    """new folder"""
    heads: Count | None
    """number of heads, which files of meshed_memory do not tell; null: as published"""


@command("convert.yaml", ConvertSettings)
def main(config: ConvertSettings) -> None:
    """Write the folder, and print the commands that a user probably wants."""
    if config.source not in SOURCES:
        hint = did_you_mean(config.source, SOURCES)
        raise CaptioningError(
            f"source={quoted(config.source)} is not known.{hint} Sources: {', '.join(SOURCES)}"
        )
    output = config.output
    if output.exists():
        raise CaptioningError(f"output={quoted(output)} exists: set another output")
    # imported here, because PyTorch takes seconds
    source: Any = import_module(f"captioning.convert.sources.{config.source}")
    weights, vocabulary = config.weights, config.vocabulary
    more = {} if config.heads is None else {"heads": config.heads}
    validate_arguments("convert", source.convert, more)
    converted: Converted = source.convert(weights, vocabulary, **more)
    settings = run_settings(converted.settings)
    files = [weights, *([vocabulary] if vocabulary.is_file() else vocabulary.glob("*.json"))]
    settings["source"] = {
        "repository": source.REPOSITORY,
        "licence": source.LICENCE,
        "paper": source.PAPER,
        "files": [file_record(path) for path in sorted(files)],
    }
    from captioning.convert.write import write_captioner

    with atomic_folder(output) as draft:
        size = write_captioner(draft / "checkpoints" / "best.ckpt", settings, converted, weights)
        write_text(draft / "settings.yaml", yaml.safe_dump(converted.settings))
    checkpoint = shlex.quote(f"checkpoint={output}/checkpoints/best.ckpt")
    print(f"{output}: {size:,} parameters, {source.REPOSITORY}")
    features = "backbone=features" in converted.settings
    if not features:
        print(f"next: captioning predict PHOTOGRAPH {checkpoint}")
    precomputed = " features=PATH" if features else ""
    if any(setting.startswith("backbone.whole=") for setting in converted.settings):
        precomputed += " whole_features=PATH"
    print(f"next: captioning evaluate {checkpoint} data.root=FOLDER{precomputed}")


def run_settings(found: list[str]) -> Config:
    """The configuration of a run on COCO with the settings that were found, in plain values."""
    overrides = ["data=coco", "data.root=coco", "data.vocabulary=checkpoint", *found]
    GlobalHydra.instance().clear()  # of this command, which is composed by now
    with composition(CONF / "config.yaml", overrides) as config:
        with open_dict(config):
            del config["hydra"]
        plain: Any = OmegaConf.to_container(config, resolve=True)
        return plain


if __name__ == "__main__":
    start(main)
