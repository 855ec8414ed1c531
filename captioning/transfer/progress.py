"""Progress in bytes, on standard error."""

import sys

from tqdm import tqdm


def byte_bar(text: str, total: int | None, initial: int = 0) -> "tqdm[None]":
    """A bar that counts bytes; `total` None: of unknown length."""
    interval = 0.5 if sys.stderr.isatty() else 30
    return tqdm(desc=text, total=total, initial=initial, unit="B", unit_scale=True, mininterval=interval)
