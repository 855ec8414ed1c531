"""Upload a captioner to the Hugging Face Hub: `python -m captioning.push checkpoint=FILE to=hf:USER/NAME`.

It gets a card with data, scores, settings and limits from the record of its run. With `to=FOLDER` both are left there,
to be looked at first.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from omegaconf import DictConfig

from captioning.config.command import command, start
from captioning.config.registry import CONF
from captioning.config.settings import check_table
from captioning.config.types import PathText
from captioning.download.named import (
    FILE,
    REPOSITORY,
    check_checkpoint,
    checkpoint_path,
    given_path,
    hub_token,
    is_elsewhere,
)
from captioning.errors import CaptioningError, quoted

SETTINGS: Mapping[str, Any] = {
    "checkpoint": PathText | None,
    "to": PathText | None,
    "half": bool,
    "licence": str | None,
}
PATIENCE = 60  # seconds of silence; the library's own client waits for ever


@command(CONF / "push.yaml")
def main(config: DictConfig) -> None:
    """Write captioner and card to a folder, and upload it where it goes to the hub."""
    check_table(SETTINGS, config)
    if not config.checkpoint or not config.to:
        raise CaptioningError("checkpoint and to must be set: add checkpoint=FILE to=hf:USER/NAME")
    check_checkpoint("checkpoint", config.checkpoint)
    of_hub = REPOSITORY.fullmatch(config.to) is not None
    if of_hub and hub_token() is None:
        raise CaptioningError(
            "you are not logged in to the Hugging Face Hub: give the command `hf auth login`, or set the variable "
            "HF_TOKEN to a token that may write"
        )
    if not of_hub and (is_elsewhere(config.to) or given_path(config.to).exists()):
        allowed = "hf:USER/NAME, hf:USER/NAME@BRANCH or a new folder"
        raise CaptioningError(f"to={quoted(config.to)} is not allowed; it must be {allowed}")

    from captioning.push.card import write_folder  # here, because PyTorch takes seconds

    with TemporaryDirectory() as parent:
        folder = Path(parent, "captioner") if of_hub else given_path(config.to)
        called = config.to if of_hub else str(folder / FILE)
        write_folder(folder, checkpoint_path(config.checkpoint), called, config.half, config.licence)
        print(
            upload(folder, config.to) if of_hub else f"{folder}: {', '.join(p.name for p in sorted(folder.iterdir()))}"
        )


def upload(folder: Path, name: str) -> str:
    """Upload the files of a folder as one commit to `hf:USER/NAME[@BRANCH]`; return its address."""
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.utils import get_session

    place, files = REPOSITORY.fullmatch(name), sorted(folder.iterdir())
    assert place is not None
    print(f"{sum(path.stat().st_size for path in files) / 1e6:.1f} MB go to {name}", file=sys.stderr)
    try:
        get_session().timeout = PATIENCE
        commit = HfApi(token=hub_token()).create_commit(
            place["repo_id"],
            [CommitOperationAdd(path.name, path) for path in files],
            commit_message="A captioner and its card",
            revision=place["revision"],
        )
    except Exception as error:  # of the HTTP library too, which is another one from version to version
        raise CaptioningError(f"the Hugging Face Hub has not taken {name}: {quoted(error)}") from error
    return quoted(commit.commit_url)


if __name__ == "__main__":
    start(main)
