"""Whether there is room."""

import shutil
from pathlib import Path

from captioning.errors import CaptioningError


def check_free(folder: Path, needed: int, purpose: str) -> None:
    """Refuses to begin what would fill the disk.

    Args:
        folder: somewhere on the disk.
        needed: bytes.
        purpose: what they are needed for, after "to".

    Raises:
        CaptioningError: fewer bytes are free.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise CaptioningError(
            f"{needed / 1e9:.2f} GB are needed to {purpose}, and {free / 1e9:.2f} GB are free on the disk of {folder}: "
            "make room, or choose another folder with root=FOLDER"
        )
