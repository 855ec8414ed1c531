"""Write the project's pages as a site that can be searched: `python -m captioning.docs`."""

from pathlib import Path

from omegaconf import DictConfig
from pydantic import Field

from captioning.__main__ import COMMANDS, about
from captioning.config.command import command, start
from captioning.config.registry import CONF
from captioning.config.settings import Settings
from captioning.config.types import PathText


class DocsSettings(Settings):
    """Settings of `captioning docs`."""

    output: PathText = Field(description="the folder of index.html")
    strict: bool = Field(description="true: a link that leads nowhere ends it")


@command(CONF / "docs.yaml", DocsSettings)
def main(config: DictConfig) -> None:
    """Write `index.html` and all other pages into `output`."""
    from captioning.docs.site import build  # here, because it imports every part

    build(Path(config.output), config.strict, {name: about(name) for name in COMMANDS})
    print(f"python -m http.server --directory {config.output}")  # the search needs a server


if __name__ == "__main__":
    start(main)
