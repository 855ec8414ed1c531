"""Upload a captioner to the Hugging Face Hub: `python -m captioning.push checkpoint=FILE to=hf:USER/NAME`.

It gets a card with data, scores, settings and limits from the record of its run. With `to=FOLDER` both are left there,
to be looked at first.
"""

import io
import sys
import warnings
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from omegaconf import DictConfig

from captioning.config.command import command, start
from captioning.config.paths import check_checkpoint, checkpoint_path, given_path
from captioning.config.registry import CONF
from captioning.config.settings import check_table
from captioning.config.types import PathText
from captioning.errors import CaptioningError, quoted
from captioning.transfer.named import FILE, HUB, Repository, hub_token, is_elsewhere, patience, repository
from captioning.transfer.request import within

SETTINGS: Mapping[str, Any] = {
    "checkpoint": PathText | None,
    "to": PathText | None,
    "half": bool,
    "licence": str | None,
}


@command(CONF / "push.yaml")
def main(config: DictConfig) -> None:
    """Write captioner and card to a folder, and upload it where it goes to the hub."""
    check_table(SETTINGS, config)
    for key in ("checkpoint", "to"):
        if config[key] is None:
            raise CaptioningError(f"{key} is not set and has no default: add {key}=VALUE")
    check_checkpoint("checkpoint", config.checkpoint)
    place = repository(config.to)
    if place and hub_token() is None:
        raise CaptioningError(
            "you are not logged in to the Hugging Face Hub: give the command `hf auth login`, or set the variable "
            "HF_TOKEN to a token that may write"
        )
    if not place and (is_elsewhere(config.to) or given_path(config.to).exists()):
        allowed = "hf:USER/NAME, hf:USER/NAME@BRANCH or a new folder"
        raise CaptioningError(f"to={quoted(config.to)} is not allowed; it must be {allowed}")

    from captioning.push.folder import write_folder  # here, because PyTorch takes seconds

    checkpoint = checkpoint_path(config.checkpoint)
    if not place:
        folder = given_path(config.to)
        write_folder(folder, checkpoint, str(folder / FILE), config.half, config.licence)
        print(f"{folder}: {', '.join(path.name for path in sorted(folder.iterdir()))}")
        return
    with TemporaryDirectory() as parent:
        folder = Path(parent, "captioner")
        write_folder(folder, checkpoint, config.to, config.half, config.licence)
        print(upload(folder, place))


def upload(folder: Path, place: Repository, longest: float | None = None) -> str:
    """Upload the files of a folder as one commit; return its address.

    `longest`: seconds until it has to be done; None: by the size of the files.
    """
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
    from huggingface_hub.utils import logging

    name, size = f"{HUB}{place.repo_id}", sum(path.stat().st_size for path in folder.iterdir())
    longest = patience(size) if longest is None else longest
    print(f"{size / 1e6:.1f} MB go to {name}", file=sys.stderr)
    logging.set_verbosity(logging.CRITICAL)
    # What the library prints is in part the server's. It waits for an answer as long as the server likes.
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return quoted(within(longest, partial(_commit, folder, place)))
        except TimeoutError as error:
            reason = quoted(error) if str(error) else f"no end after {longest:g} s, try again later"
        except RepositoryNotFoundError:
            reason = "there is no such repository that you may write to: make it, or correct the name"
        except RevisionNotFoundError:
            reason = f"it has no branch {place.revision}: make it there, or leave it out"
        except Exception as error:  # of the HTTP library too, which is another one from version to version
            reason = quoted(error if isinstance(error, HfHubHTTPError) else error.__cause__ or error)
    raise CaptioningError(f"the Hugging Face Hub has not taken {name}: {reason}")


def _commit(folder: Path, place: Repository) -> str:
    from huggingface_hub import CommitOperationAdd, HfApi

    files = [CommitOperationAdd(path.name, path) for path in sorted(folder.iterdir())]
    hub = HfApi(token=hub_token())
    message = "A captioner and its card"
    return hub.create_commit(place.repo_id, files, commit_message=message, revision=place.revision).commit_url


if __name__ == "__main__":
    start(main)
