"""Write the project's pages as a site that can be searched: `python -m captioning.docs`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from captioning.__main__ import COMMANDS, about
from captioning.config.command import command, start
from captioning.config.registry import CONF
from captioning.config.settings import check_table
from captioning.config.types import PathText

SETTINGS: Mapping[str, Any] = {"output": PathText, "strict": bool}


@command(CONF / "docs.yaml", SETTINGS)
def main(config: DictConfig) -> None:
    """Write `index.html` and all other pages into `output`."""
    check_table(SETTINGS, config)
    from captioning.docs.site import build  # here, because it imports every part

    build(Path(config.output), config.strict, {name: about(name) for name in COMMANDS})
    print(f"python -m http.server --directory {config.output}")  # the search needs a server


if __name__ == "__main__":
    start(main)
