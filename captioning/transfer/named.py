"""Captioners named by an address: `https://HOST/FILE.safetensors#sha256=HEX`, or `hf:USER/NAME[@REVISION]`.

They are downloaded once, into the folder `captioning` of the user's cache or into that of the Hugging Face Hub, where
its other programs find them. The requests are ours: the hub's client writes where a server's headers tell it to.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from filelock import FileLock

from captioning.errors import SECRETS, CaptioningError, quoted
from captioning.files import write_text
from captioning.transfer.fetch import Connection, RemoteFile, Unavailable, fetch
from captioning.transfer.request import NUMBER, Interrupted, ask, check_status

HUB: Final = "hf:"
SUFFIX: Final = ".safetensors"
FILE: Final = f"captioner{SUFFIX}"  # in its repository
ADDRESS = re.compile(rf"(?P<url>https?://[^#]+\{SUFFIX})#sha256=(?P<sha256>[0-9a-f]{{64}})")
NAME = re.compile(rf"{HUB}(?P<repo_id>[\w.-]+/[\w.-]+)(@(?P<revision>\w[\w.-]*(/\w[\w.-]*)*))?", re.ASCII)
COMMIT, SHA256 = re.compile("[0-9a-f]{40}"), re.compile('"?([0-9a-f]{64})"?')
COMMIT_HEADER, SHA256_HEADER, SIZE_HEADER = "X-Repo-Commit", "X-Linked-Etag", "X-Linked-Size"
PATIENT = Connection(timeout=30, retries=4, backoff=1)
QUICK = 10  # seconds of silence before a cached captioner is used


class Repository(NamedTuple):
    """A repository of the hub and its branch, tag or commit; None: its main branch."""

    repo_id: str
    revision: str | None


def is_elsewhere(name: object) -> bool:
    """Whether a checkpoint is named by an address."""
    return str(name).startswith((HUB, "http://", "https://"))


def check_address(key: str, name: object) -> None:
    """Refuse an address of another form."""
    if not (ADDRESS.fullmatch(str(name)) or repository(name)):
        raise CaptioningError(
            f"{key}={quoted(name)} is not allowed; a captioner elsewhere is https://HOST/FILE{SUFFIX}#sha256=HEX, "
            "64 digits, or hf:USER/NAME, or hf:USER/NAME@REVISION"
        )


def fetched(name: str) -> Path:
    """File of an address, downloaded if it is not there yet."""
    check_address("checkpoint", name)
    if place := repository(name):
        try:
            return from_hub(place)
        except CaptioningError as error:
            raise CaptioningError(f"cannot get {name} from the Hugging Face Hub: {error}") from error
    url, _, sha256 = name.partition("#sha256=")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "captioning"  # noqa: PTH111
    path = cache / f"{sha256}{SUFFIX}"
    _download(RemoteFile(url=url, checksum=f"sha256:{sha256}"), path, path.with_suffix(".lock"), PATIENT)
    return path


def repository(name: object) -> Repository | None:
    """Repository called `hf:...`; None where the hub has no such names."""
    match = NAME.fullmatch(str(name))
    if not match or any(part in (match["revision"] or "") for part in ("..", "--")):
        return None
    from huggingface_hub.errors import HFValidationError  # here and below, because it takes a second
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(match["repo_id"])
    except HFValidationError:
        return None
    return Repository(match["repo_id"], match["revision"])


def hub_token() -> str | None:
    """Token of the user on the hub, which no message shows from now on."""
    from huggingface_hub import get_token

    token = get_token()
    SECRETS.update({token} if token else ())
    return token


def patience(size: int | None) -> float:
    """Seconds for a file of so many bytes: a minute, and 10 s for each megabyte, an hour at most."""
    return 3600 if size is None else min(60 + size / 100_000, 3600)


def from_hub(place: Repository, connection: Connection = PATIENT, longest: float | None = None) -> Path:
    """Captioner of a repository in the hub's cache; the cached one if the hub does not answer.

    `longest`: seconds for the download; None: by its size.
    """
    from huggingface_hub import constants, hf_hub_url, try_to_load_from_cache

    wanted = place.revision or "main"
    cached = try_to_load_from_cache(place.repo_id, FILE, revision=wanted)
    if isinstance(cached, str) and COMMIT.fullmatch(wanted):
        return Path(cached)
    token = hub_token()
    try:
        if constants.HF_HUB_OFFLINE:
            raise Unavailable("HF_HUB_OFFLINE is set, and it is not in the cache")
        commit, size, checksum = _described(hf_hub_url(place.repo_id, FILE, revision=wanted), token)
    except Unavailable:
        if isinstance(cached, str):
            return Path(cached)
        raise
    cache = Path(constants.HF_HUB_CACHE)
    folder = cache / "--".join(("models", *place.repo_id.split("/")))
    path = folder / "snapshots" / commit / FILE
    file = RemoteFile(url=hf_hub_url(place.repo_id, FILE, revision=commit), checksum=checksum)
    lock = cache / ".locks" / folder.name / f"{commit}.lock"
    _download(file, path, lock, connection, token, patience(size) if longest is None else longest)
    if wanted != commit:
        with suppress(OSError, CaptioningError):  # only needed without a network, and a cache may be read-only
            reference = folder / "refs" / wanted
            reference.parent.mkdir(parents=True, exist_ok=True)
            write_text(reference, commit)
    return path


def _download(
    file: RemoteFile,
    path: Path,
    lock: Path,
    connection: Connection,
    token: str | None = None,
    longest: float = patience(None),
) -> None:
    if path.exists():
        return
    for folder in (path.parent, lock.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):  # another process may be downloading it
        if not path.exists():
            fetch(file, path, connection, token, longest)


def _described(url: str, token: str | None) -> tuple[str, int | None, str | None]:
    """Commit, size and checksum of a file on the hub."""
    try:
        with ask("HEAD", url, QUICK, token) as last:
            # The hub describes a large file in the redirect to its storage.
            answers = [*last.history, last]
            answer = next((each for each in answers if COMMIT_HEADER in each.headers), last)
            if answer.status_code in (401, 403, 404):
                raise Unavailable(f"there is no {FILE} that you may read (answer {answer.status_code})")
            if COMMIT_HEADER not in answer.headers or answer.status_code >= 400:
                check_status(answer)
    except Interrupted as error:
        raise Unavailable(str(error)) from error
    commit = answer.headers.get(COMMIT_HEADER, "")
    if not COMMIT.fullmatch(commit):
        raise Unavailable(f"it names {quoted(commit) or 'nothing'} as the commit, which no hub does")
    size, digest = answer.headers.get(SIZE_HEADER, ""), SHA256.fullmatch(answer.headers.get(SHA256_HEADER, ""))
    return commit, int(size) if re.fullmatch(NUMBER, size) else None, f"sha256:{digest[1]}" if digest else None
