"""Copy rows of finished caches instead of computing them again.

The same photographs come under several names of data sets, captions and splits. A finished cache has a file with the
source of each row: a digest of backbone, precision and the photograph's file, and the row's origin for its checksum.

B rows in a batch, L context vectors of D features.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captioning.errors import CaptioningError
from captioning.features.cache import CHECKSUM, FeatureCache, Layout, Precision

FILES = "files"
RECORD = np.dtype([("file", "S32"), ("origin", CHECKSUM)])
BATCH = 32

Row = tuple[FeatureCache, int]


def file_digests(
    backbone_digest: str, dtype: Precision, paths: Sequence[Path], photographs: Sequence[bytes]
) -> list[bytes]:
    """Digests of backbone, precision and file, by which rows are found in other caches.

    The `fingerprints` of `photographs` alone would not do: their paths start at a folder that depends on all of them.
    """
    found = []
    for path, photograph in zip(paths, photographs, strict=True):
        size_and_time = photograph.partition(b"\0")[2]
        key = b"%s %s\n%s\0%s" % (backbone_digest.encode(), dtype.encode(), os.fsencode(path.absolute()), size_and_time)
        found.append(hashlib.sha256(key).hexdigest()[:32].encode())
    return found


def write_files(folder: Path, files: Sequence[bytes], origins: np.ndarray[Any, Any]) -> None:
    """Record the sources of a cache's rows."""
    records = np.empty(len(files), RECORD)
    records["file"], records["origin"] = files, origins
    records.tofile(folder / FILES)


def known_rows(folder: Path, files: Sequence[bytes], layout: Layout) -> list[Row | None]:
    """Find rows of these `file_digests` in the finished caches below `folder` whose rows have the `layout`."""
    found: list[Row | None] = [None] * len(files)
    for path in sorted(folder.glob(f"*/{FILES}")):
        if path.parent.suffix:  # not finished
            continue
        # another process may delete a cache, and a damaged one is of no use here
        with suppress(OSError, CaptioningError):
            records = np.fromfile(path, RECORD)
            rows = {file: row for row, file in enumerate(records["file"].tolist())}
            if not rows.keys().isdisjoint(files):
                cache = FeatureCache(path.parent, replace(layout, rows=len(records)), records["origin"])
                found = [
                    (cache, rows[file]) if each is None and file in rows else each
                    for each, file in zip(found, files, strict=True)
                ]
    return found


def with_computed(known: Sequence[Row | None], computed: Iterator[Tensor]) -> Iterator[Tensor]:
    """Rows in order, `[B, L, D]`: the `known` ones, and the `computed` ones in the places of others."""
    if not any(known):
        yield from computed
        return
    rows = (row for batch in computed for row in batch)
    for first in range(0, len(known), BATCH):
        part = known[first : first + BATCH]
        yield torch.stack([next(rows) if each is None else torch.from_numpy(each[0][each[1]]) for each in part])
