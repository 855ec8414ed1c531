"""Checkpoints by name: a file, `pretrained`, or an address.

`https://HOST/FILE.safetensors#sha256=HEX`, or `hf:USER/NAME[@REVISION]`.

Those elsewhere are downloaded once, into the folder `captioning` of the user's cache or that of the
Hugging Face Hub.
"""

# Methods of `Path` raise for names that no file or home can have.
# ruff: noqa: PTH110, PTH113

import os
import re
from pathlib import Path
from typing import Any

from filelock import FileLock

from captioning.config.types import given_path
from captioning.errors import SECRETS, CaptioningError, quoted
from captioning.pretrained.fetch import Connection, RemoteFile, fetch

PRETRAINED = "pretrained"  # the bundled captioner, and its folder in the package
HUB = "hf:"
SUFFIX = ".safetensors"
FILE = f"captioner{SUFFIX}"  # in its repository
ADDRESS = re.compile(rf"(?P<url>https?://[^#]+\{SUFFIX})#sha256=(?P<sha256>[0-9a-f]{{64}})")
REPOSITORY = re.compile(
    rf"{HUB}(?P<repo_id>[\w.-]+/[\w.-]+)(@(?P<revision>\w[\w.-]*(/\w[\w.-]*)*))?", re.ASCII
)
PATIENT = Connection(timeout=30, retries=4, backoff=1)


def checkpoint_path(setting: object) -> Path:
    """The file of a checkpoint; that of an address is downloaded."""
    if setting == PRETRAINED:
        return Path(__file__).with_name(FILE)
    return fetched(str(setting)) if is_elsewhere(setting) else given_path(setting)


def check_checkpoint(key: str, setting: object) -> None:
    """Refuse a checkpoint that is not there, or the address of another form."""
    if is_elsewhere(setting):
        check_address(key, setting)
        return
    path = checkpoint_path(setting)
    if os.path.isfile(path):
        return
    below = path / "checkpoints" / "best.ckpt"
    hint = "a run leaves RUN_FOLDER/checkpoints/best.ckpt"
    if os.path.isfile(below):
        hint = f"did you mean {below}?"
    state = "not a file" if os.path.exists(path) else "not there"
    raise CaptioningError(f"{key}={setting} is {state}; {hint}")


def is_elsewhere(name: object) -> bool:
    """Tell whether a checkpoint is named by an address."""
    return str(name).startswith((HUB, "http://", "https://"))


def check_address(key: str, name: object) -> None:
    """Refuse an address of another form."""
    if not (ADDRESS.fullmatch(str(name)) or REPOSITORY.fullmatch(str(name))):
        raise CaptioningError(
            f"{key}={quoted(name)} is not allowed; a captioner elsewhere is "
            f"https://HOST/FILE{SUFFIX}#sha256=HEX, 64 digits, or hf:USER/NAME, or "
            "hf:USER/NAME@REVISION"
        )


def fetched(name: str) -> Path:
    """The file of an address, downloaded if it is not there yet."""
    check_address("checkpoint", name)
    if repository := REPOSITORY.fullmatch(name):
        try:
            return _of_hub(repository["repo_id"], repository["revision"])
        except Exception as error:  # of the HTTP library too, another one from version to version
            reason = quoted(error.__cause__ or error)
            raise CaptioningError(
                f"cannot get {name} from the Hugging Face Hub: {reason}"
            ) from error
    url, _, sha256 = name.partition("#sha256=")
    path = user_cache() / f"{sha256}{SUFFIX}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):  # another process may be downloading it
            if not path.exists():
                fetch(RemoteFile(url=url, checksum=f"sha256:{sha256}"), path, PATIENT)
    return path


def user_cache() -> Path:
    """The folder `captioning` of the user's cache, which may not be there yet."""
    return given_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "captioning"


def _of_hub(repository: str, revision: str | None) -> Path:
    """The captioner of a repository, from the hub's cache if the hub does not answer."""
    from huggingface_hub import hf_hub_download, hf_hub_url  # here, because it takes a second
    from huggingface_hub.utils import get_session

    get_session().event_hooks["response"] = [_check_tag]
    path = Path(hf_hub_download(repository, FILE, revision=revision, token=hub_token()))
    content = path.resolve()  # which the hub's cache calls by the SHA-256 of a large file
    if re.fullmatch("[0-9a-f]{64}", content.name):
        expected = RemoteFile(url=hf_hub_url(repository, FILE), checksum=f"sha256:{content.name}")
        expected.check(content, "it is damaged, delete it")
    return path


def _check_tag(response: Any) -> None:
    """Refuse the answer of a hub whose tag, by which its cache calls the file, is no name."""
    for name in ("ETag", "X-Linked-Etag") if response.request.method == "HEAD" else ():
        tag = response.headers.get(name, "").removeprefix("W/").strip('"')
        if not re.fullmatch(r"[\w-]*", tag, re.ASCII):
            raise CaptioningError(
                f"{response.url} has {name}={quoted(tag)}, which is no name of a file"
            )


def hub_token() -> str | None:
    """The user's token on the hub, which no message shows from now on."""
    from huggingface_hub import get_token
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # its warnings quote what servers send
    token = get_token()
    if token:
        SECRETS.add(token)
    return token
