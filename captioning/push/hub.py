"""A folder becomes a commit in a repository of the Hugging Face Hub."""

from pathlib import Path

from captioning.errors import CaptioningError, quoted


def check_login() -> None:
    """Refuses to go on for who is not logged in.

    Raises:
        CaptioningError: says how to.
    """
    from huggingface_hub import get_token  # here and below, because it takes a second

    if get_token() is None:
        raise CaptioningError(
            "you are not logged in to the Hugging Face Hub: give the command `hf auth login`, or set the variable "
            "HF_TOKEN to a token that may write"
        )


def upload(folder: Path, repo_id: str, revision: str | None) -> str:
    """Uploads the files of a folder as one commit, whose address it gives.

    Files of these names that are in the repository are replaced; its history keeps them.

    Raises:
        CaptioningError: there is no such repository or branch, it may not be written to, or the hub cannot be reached.
    """
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    hub = HfApi()
    files = [CommitOperationAdd(path.name, path) for path in sorted(folder.iterdir())]
    try:
        done = hub.create_commit(repo_id, files, commit_message="A captioner and its card", revision=revision)
    except RepositoryNotFoundError as error:
        raise CaptioningError(
            f"there is no repository {repo_id} that you may write to: make it at {hub.endpoint}/new, or mend the name"
        ) from error
    except RevisionNotFoundError as error:
        raise CaptioningError(f"hf:{repo_id} has no branch {revision}: make it there, or leave it out") from error
    except Exception as error:  # of the HTTP library too, which is another one from version to version
        raise CaptioningError(
            f"the Hugging Face Hub ({hub.endpoint}) has not taken hf:{repo_id}: {quoted(error.__cause__ or error)}"
        ) from error
    return str(done.commit_url)
