"""Captioners in repositories of the Hugging Face Hub: `hf:USER/NAME`, or `hf:USER/NAME@REVISION`.

They lie in the hub's own cache, where its other programs find them, and what those have brought is used. The requests
are ours: the hub's client writes where a server's headers say, and waits as long as the server likes.
"""

import re
from contextlib import suppress
from email.message import Message
from pathlib import Path
from typing import Final, NamedTuple
from urllib.error import HTTPError

from filelock import FileLock

from captioning.errors import SECRETS, CaptioningError, quoted
from captioning.files import write_text
from captioning.transfer.archive import Archive
from captioning.transfer.fetch import Connection, fetch
from captioning.transfer.http import NUMBER, Interrupted, Request, Unavailable

HUB: Final = "hf:"
FILE: Final = "captioner.safetensors"
"""Name of a captioner in its repository."""
NAME = re.compile(rf"{HUB}(?P<repo_id>[\w.-]+/[\w.-]+)(@(?P<revision>\w[\w.-]*(/\w[\w.-]*)*))?", re.ASCII)
COMMIT = re.compile("[0-9a-f]{40}")
SHA256 = re.compile('"?([0-9a-f]{64})"?')
COMMIT_HEADER, SHA256_HEADER, SIZE_HEADER = "X-Repo-Commit", "X-Linked-Etag", "X-Linked-Size"
QUICK = 10
"""Seconds of silence before a cached captioner is taken as it is."""


class Repository(NamedTuple):
    """A repository by its name on the hub, at one of its branches, tags or commits; None: its main branch."""

    repo_id: str
    revision: str | None


def repository(name: object) -> Repository | None:
    """The repository that is called `hf:...`; None where the hub has no such names."""
    found = NAME.fullmatch(str(name))
    if not found or any(part in (found["revision"] or "") for part in ("..", "--")):
        return None
    from huggingface_hub.errors import HFValidationError  # here and below, because it takes a second
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(found["repo_id"])
    except HFValidationError:
        return None
    return Repository(found["repo_id"], found["revision"])


def hub_token() -> str | None:
    """The token that the user is known by on the hub, which no message shows from now on."""
    from huggingface_hub import get_token

    token = get_token()
    SECRETS.update({token} if token else ())
    return token


def patience(size: int | None) -> float:
    """Seconds for all of a file of so many bytes: a minute, and 10 s for each megabyte, an hour at most."""
    return 3600 if size is None else min(60 + size / 100_000, 3600)


def fetched(place: Repository, connection: Connection, longest: float | None = None) -> Path:
    """The captioner of a repository, in the cache; the one that is there if the hub does not answer.

    Args:
        place: the repository.
        connection: how patient every try is.
        longest: seconds for the download; None: by its size.

    Raises:
        CaptioningError: it is in neither, or is another file than the hub says.
        OSError: the cache cannot be used.
        ValueError: it holds what it should not, or a variable of the hub has a value that it cannot have.
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
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = cache / ".locks" / folder.name / f"{commit}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        archive = Archive(hf_hub_url(place.repo_id, FILE, revision=commit), {}, checksum=checksum)
        with FileLock(lock):  # another process may be at it
            if not path.exists():
                fetch(archive, path, connection, token, patience(size) if longest is None else longest)
    if wanted != commit:
        with suppress(OSError, CaptioningError):  # it is needed where there is no network, and a cache may be read-only
            reference = folder / "refs" / wanted
            reference.parent.mkdir(parents=True, exist_ok=True)
            write_text(reference, commit)
    return path


def _described(url: str, token: str | None) -> tuple[str, int | None, str | None]:
    """Of a file its commit, and bytes and checksum where they are said.

    Raises:
        Unavailable: there is no answer, or not that of a hub.
    """
    try:
        with Request(url, QUICK, token=token).answer("HEAD", enough=COMMIT_HEADER) as response:
            headers: Message = response.headers
    except HTTPError as error:
        if error.code in (401, 403, 404):
            raise Unavailable(f"there is no {FILE} that you may read (answer {error.code})") from error
        headers = error.headers
        if COMMIT_HEADER not in headers or error.code >= 400:
            raise Unavailable(f"it answers {quoted(f'{error.code} {error.reason}')}") from error
    except Interrupted as error:
        raise Unavailable(str(error)) from error
    commit = headers.get(COMMIT_HEADER, "")
    if not COMMIT.fullmatch(commit):
        raise Unavailable(f"it names {quoted(commit) or 'nothing'} as the commit, which no hub does")
    size, digest = headers.get(SIZE_HEADER, ""), SHA256.fullmatch(headers.get(SHA256_HEADER, ""))
    return (
        commit,
        int(size) if re.fullmatch(NUMBER, size) else None,
        f"sha256:{digest[1]}" if digest else None,
    )
