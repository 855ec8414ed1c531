"""The software and the device that a number comes from."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PACKAGES = ("captioning", "torch", "torchvision", "timm", "lightning", "torchmetrics", "pycocoevalcap")


def software() -> dict[str, Any]:
    """What any score depends on: commit, versions and tokenizer."""
    return {
        "commit": commit(),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "tokenizer": "PTB (Stanford CoreNLP 3.4.1, as in pycocoevalcap)",
    }


def commit() -> str | None:
    """The git commit of this package, with `+` where the working tree differs; None outside a checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    try:
        # a wheel installed below somebody else's checkout is not of that checkout
        git("ls-files", "--error-unmatch", __file__)
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def device_name(device: "torch.device") -> str:
    """The GPU's, or the processor's with the number of threads."""
    import torch  # here, because files of captions are scored without it

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"
