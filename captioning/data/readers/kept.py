"""Large splits that a reader has read once, kept as columns below the folder of the cache.

They serve every later process, also on another machine, while these stay the same: the content of
the reader's files, its settings, how entries are read, the code, and the files in the folders of
the images. What the library `datasets` has read stays the same while its fingerprint does.
"""

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from captioning.data.caption_words import CaptionWords
from captioning.data.columns import ABOUT, FEW, Columns, columns_of, data_digest
from captioning.data.example import Splits
from captioning.data.readers.options import options
from captioning.data.readers.parsing import reason
from captioning.data.vocabulary import Vocabulary
from captioning.data.words import CHARACTERS, WORDS
from captioning.errors import CaptioningError, naming
from captioning.files import atomic_folder, digest_of_file, sha256, write_json

IDS = ("values", "starts", "lexicon")  # files of the ids of captions
LEAST = 2**22  # bytes of files that are read fast enough each time

log = logging.getLogger(__name__)


def read_once(reader: Any, images: bool, read: Callable[[], Splits]) -> Splits:
    """The splits that `read` gives, if need be from the process that has read them first.

    Args:
        reader: what it reads with.
        images: whether the files of images must be there.
        read: reads them.
    """
    folder = _folder(reader, images)
    if folder is None:
        return read()
    kept = _load(folder)
    if kept is not None:
        log.info("captions as they were read before, in %s", folder)
        return kept
    if not os.access(folder.parent, os.W_OK):
        return read()
    with FileLock(folder.with_suffix(".lock")):
        kept = _load(folder)
        if kept is None:
            splits = read()
            if sum(map(len, splits.values())) <= FEW:
                return splits
            with suppress(ValueError):  # of paths that are no text
                _save(folder, splits, options().skipped or ())
            kept = _load(folder)
    return kept or splits


def _folder(reader: Any, images: bool) -> Path | None:
    """Where the splits of a reader are kept; None where they are not."""
    cache, language = options().cache, options().language
    own = type(reader).__module__.rpartition(".")[0] == __package__
    if cache is None or not own or language.tokens not in (WORDS, CHARACTERS):
        return None
    known: Sequence[str] = getattr(reader, "sources", tuple)()
    sizes = [LEAST] * len(known)  # what the library `datasets` has read is large enough
    settings = _plain(vars(reader), sizes)
    if sum(sizes) < LEAST:
        return None
    with suppress(OSError):  # a cache may be one that is only read
        (cache / "captions").mkdir(parents=True, exist_ok=True)
    about = [
        type(reader).__name__,
        known,
        settings,
        [language.code, language.tokens, options().skipped is None, options().groups, images],
        [sha256(file.read_bytes()) for file in sorted(Path(__file__).parents[1].rglob("*.py"))],
    ]
    return cache / "captions" / sha256(json.dumps(about))[:32]


def _plain(value: Any, sizes: list[int]) -> Any:
    """A setting as plain values, with the digests of files, whose bytes are added to `sizes`."""
    if isinstance(value, Path):
        names = [str(value), str(value.absolute())]
        if not value.is_file():
            return names
        sizes.append(value.stat().st_size)
        return [*names, digest_of_file(value)]
    if isinstance(value, Mapping):
        return {key: _plain(each, sizes) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each, sizes) for each in value]
    return _plain(vars(value), sizes) if hasattr(value, "__dict__") else value


def _save(folder: Path, splits: Splits, skipped: Sequence[Exception]) -> None:
    columns = {name: columns_of(examples) for name, examples in splits.items()}
    shutil.rmtree(folder, ignore_errors=True)  # of files that came or went
    with atomic_folder(folder) as draft:
        for name, examples in columns.items():
            examples.save(draft / name)
        about = {
            "splits": list(columns),
            "digest": data_digest(columns),
            "folders": _times(columns.values()),
            "skipped": list(map(reason, skipped)),
        }
        write_json(draft / ABOUT, about)


def _load(folder: Path) -> Splits | None:
    """The splits that are kept in a folder; None if there are none, or if files came or went."""
    try:
        about = json.loads((folder / ABOUT).read_bytes())
        if any(_time(place) != time for place, time in about["folders"].items()):
            return None
        splits = {name: Columns.load(folder / name, about["digest"]) for name in about["splits"]}
    except (OSError, EOFError, ValueError, KeyError):
        return None
    if (skipped := options().skipped) is not None:
        skipped[:] = map(CaptioningError, about["skipped"])
    return splits


def kept_key(splits: Splits) -> bytes | None:
    """What changes if kept splits do, or files come into their folders or go; None of others."""
    columns = [each for each in splits.values() if isinstance(each, Columns) and each.digest]
    if len(columns) < len(splits):
        return None
    return json.dumps([data_digest(splits), [*splits], _times(columns)]).encode()


def kept_ids(
    captions: CaptionWords[str], vocabulary: Vocabulary, folder: Path | None
) -> CaptionWords[int]:
    """The ids of captions; those of pieces are kept in the folder of their columns, if there is
    one, as tokenizers are slow.
    """
    if folder is None or not vocabulary.pieces or not os.access(folder, os.W_OK):
        return vocabulary.encode_all(captions)
    place = folder / sha256(str(vocabulary.saved))[:32]
    with FileLock(place.with_suffix(".lock")):
        if not place.exists():
            ids = vocabulary.encode_all(captions)
            with atomic_folder(place) as draft:
                for name in IDS:
                    np.save(draft / name, getattr(ids, name))
    with naming(f"{place} cannot be read: delete it, and it is made again"):
        values, starts, lexicon = (
            np.load(place / f"{name}.npy", mmap_mode="r", allow_pickle=False).view(np.ndarray)
            for name in IDS
        )
    return CaptionWords(values, starts, lexicon.tolist())


def _times(splits: Iterable[Columns]) -> dict[str, int | None]:
    """When files came into the folders or went; None of one that is not there."""
    return {place: _time(place) for columns in splits for place in columns.folders}


def _time(folder: str) -> int | None:
    with suppress(OSError):
        return os.stat(folder or ".").st_mtime_ns  # noqa: PTH116, because paths are slower
    return None
