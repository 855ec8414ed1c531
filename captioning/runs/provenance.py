"""Provenance of results: digests of files and code, commit, versions, and device."""

import functools
import hashlib
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioning.config.registry import PACKAGE
from captioning.data.words import ENGLISH, Language
from captioning.files import digest_of_file
from captioning.pretrained.library import is_untrained, library_digest
from captioning.pretrained.named import checkpoint_path

if TYPE_CHECKING:
    import torch

LIBRARIES = (
    "captioning",
    "torch",
    "torchvision",
    "numpy",
    "pillow",
    "timm",
    "transformers",
    "peft",
    "tokenizers",
    "open_clip_torch",
    "lightning",
    "torchmetrics",
    "pycocoevalcap",
)


def file_record(file: object) -> dict[str, str]:
    """Name or address of a file with a digest of its content, for the provenance."""
    digest = library_digest(file) if is_untrained(file) else digest_of_file(checkpoint_path(file))
    return {"file": str(file), "sha256": digest}


def software(language: Language) -> dict[str, Any]:
    """Commit, digest of the code, versions and tokenizer, on which every score depends."""
    tokenizer = (
        "PTB (Stanford CoreNLP 3.4.1, as in pycocoevalcap)"
        if language.code == ENGLISH
        else f"{language.tokens}, language={language.code}"
    )
    return {
        "commit": commit(),
        "code": code_digest(),
        "versions": versions(),
        "tokenizer": tokenizer,
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that are installed."""
    installed = {"python": platform.python_version()}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):  # a checkout on the path is not installed
            installed[name] = version(name)
    return installed


@functools.cache
def code_digest() -> str:
    """SHA-256 over the sources of this package as they were when a run first asked."""
    sha = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        sha.update(f"{path.relative_to(PACKAGE)}\0".encode() + path.read_bytes() + b"\0")
    return sha.hexdigest()


def commit() -> str | None:
    """Return the git commit, with `+` for uncommitted changes; None outside a checkout."""
    git = ["git", "-C", str(Path(__file__).parent)]
    read = functools.partial(subprocess.check_output, text=True, stderr=subprocess.DEVNULL)
    try:
        # a wheel may lie below somebody else's checkout
        read([*git, "ls-files", "--error-unmatch", __file__])
        changed = read([*git, "status", "--porcelain", "--untracked-files=no"]).strip()
        return read([*git, "rev-parse", "HEAD"]).strip() + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def device_name(device: "torch.device") -> str:
    """The GPU, or the processor with its number of threads."""
    import torch  # here, because files of captions are scored without it

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"
