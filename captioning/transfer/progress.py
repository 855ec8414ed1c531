"""Progress in bytes, on standard error."""

from typing import TYPE_CHECKING, Any

from captioning.progress import counter

if TYPE_CHECKING:
    from tqdm import tqdm


def byte_bar(text: str, total: int | None, initial: int = 0) -> "tqdm[Any]":
    """A bar that counts bytes; `total` None: of unknown length."""
    return counter(text, total, "B", initial=initial, unit_scale=True)
