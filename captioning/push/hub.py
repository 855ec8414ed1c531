"""A folder becomes a commit in a repository of the Hugging Face Hub: `python -m captioning.push.hub FOLDER REPO_ID`.

In a process of its own, which can be ended: the hub's client waits for an answer, and as long as a server asks it to.
What it prints on the way, of which some is the server's, is kept back.
"""

import json
import subprocess
import sys
from pathlib import Path

from captioning.errors import CaptioningError, quoted
from captioning.transfer.named import HUB, Repository, hub_token, patience


def check_login() -> None:
    """Refuses to go on for who is not logged in.

    Raises:
        CaptioningError: says how to.
    """
    if hub_token() is None:
        raise CaptioningError(
            "you are not logged in to the Hugging Face Hub: give the command `hf auth login`, or set the variable "
            "HF_TOKEN to a token that may write"
        )


def upload(folder: Path, place: Repository, longest: float | None = None) -> str:
    """Uploads the files of a folder as one commit, whose address it gives.

    Files of these names that are in the repository are replaced; its history keeps them.

    Args:
        folder: of files alone.
        place: the repository, and its branch.
        longest: seconds until it has to be done; None: by the size of the files.

    Raises:
        CaptioningError: there is no such repository or branch, it may not be written to, or the hub cannot be reached.
    """
    size = sum(path.stat().st_size for path in folder.iterdir())
    longest = patience(size) if longest is None else longest
    command = [
        sys.executable,
        "-m",
        __name__,
        str(folder),
        place.repo_id,
        *([place.revision] if place.revision else []),
    ]
    print(f"{size / 1e6:.1f} MB go to {HUB}{place.repo_id}", file=sys.stderr)
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=longest)
    except subprocess.TimeoutExpired as error:
        raise CaptioningError(
            f"the Hugging Face Hub has not taken {HUB}{place.repo_id} in {longest:g} s: try again later"
        ) from error
    said = ended.stdout.decode(errors="replace").splitlines()
    if ended.returncode or not said:
        reason = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise CaptioningError(f"the Hugging Face Hub has not taken {HUB}{place.repo_id}: {quoted(reason)}")
    answer = json.loads(said[-1])
    if "refused" in answer:
        raise CaptioningError(answer["refused"])
    return str(answer["address"])


def _commit(folder: Path, repo_id: str, revision: str | None = None) -> str:
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

    hub = HfApi(token=hub_token())
    files = [CommitOperationAdd(path.name, path) for path in sorted(folder.iterdir())]
    try:
        done = hub.create_commit(repo_id, files, commit_message="A captioner and its card", revision=revision)
    except RepositoryNotFoundError as error:
        raise CaptioningError(
            f"there is no repository {repo_id} that you may write to: make it at {hub.endpoint}/new, or mend the name"
        ) from error
    except RevisionNotFoundError as error:
        raise CaptioningError(f"{HUB}{repo_id} has no branch {revision}: make it there, or leave it out") from error
    except Exception as error:  # of the HTTP library too, which is another one from version to version
        reason = error if isinstance(error, HfHubHTTPError) else error.__cause__ or error
        raise CaptioningError(
            f"the Hugging Face Hub ({hub.endpoint}) has not taken {HUB}{repo_id}: {quoted(reason)}"
        ) from error
    return quoted(done.commit_url)


if __name__ == "__main__":
    try:
        answer = {"address": _commit(Path(sys.argv[1]), *sys.argv[2:])}
    except CaptioningError as error:
        answer = {"refused": str(error)}
    print(f"\n{json.dumps(answer)}")
