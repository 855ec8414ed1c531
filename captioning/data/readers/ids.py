"""Ids of images: unique in a file, matched between files, common to several, and as file names."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar
from unicodedata import normalize

from captioning.data.readers.parsing import ImageId, or_skip
from captioning.errors import CaptioningError, listed
from captioning.files import SUFFIXES

T = TypeVar("T")


def by_image(pairs: Iterable[tuple[ImageId, T]]) -> dict[ImageId, T]:
    """A dictionary by image id; duplicate ids are errors."""
    values = {}
    for image_id, value in pairs:
        with or_skip():
            if image_id in values:
                raise CaptioningError(f"the image {image_id!r:.200} occurs twice")
            values[image_id] = value
    return values


def captions_by_image(
    images: Iterable[ImageId], captions: Iterable[tuple[ImageId, str]], key: str
) -> dict[ImageId, list[str]]:
    """The captions of each image, in the order of the images; `key` is that of the captions."""
    texts = by_image((image_id, list[str]()) for image_id in images)
    for position, (image_id, text) in enumerate(captions):
        with or_skip():
            if image_id not in texts:
                raise CaptioningError(f"{key}[{position}]: no image has the id {image_id!r:.200}")
            texts[image_id].append(text)
    return texts


def match_names(
    asked: Iterable[str], there: Collection[str], strict: bool = False
) -> dict[str, str]:
    """The names that are `there` of those `asked` for.

    They may have letters composed otherwise, and unless `strict` other case or suffixes, if each is
    similar to one name alone.
    """
    asked = dict.fromkeys(asked)
    found = {name: name for name in asked if name in there}
    for similar in (composed,) if strict else (composed, str.casefold, stem):
        counts, alike = Counter(map(similar, asked)), defaultdict(list)
        for name in there:
            alike[similar(name)].append(name)
        for name in asked:
            names = alike[similar(name)]
            if len(names) == counts[similar(name)] == 1:
                found.setdefault(name, names[0])
            elif similar is composed and len(names) > 1 and name not in found:
                raise CaptioningError(
                    f"{name:.200} is {' or '.join(map(ascii, sorted(names)))}: rename one of them"
                )
    return found


def coco_numbers(name: str) -> list[str]:
    """The image id in a file name of COCO's without suffix, or none.

    Example:
        >>> coco_numbers("COCO_val2014_000000391895"), coco_numbers("dog_1")
        (['391895'], [])
    """
    found = re.fullmatch(r"(?:COCO_\w+_)?(\d{12})", name)
    return [str(int(found[1]))] if found else []


def composed(name: str) -> str:
    """The name in NFC: macOS has letters and their accents apart."""
    return normalize("NFC", name)


def file_name(name: str, taken: set[str]) -> str:
    """Name a file after an image, with a number if that is `taken`."""
    free, number = name, 1
    while free.casefold() in taken:  # some file systems ignore the case
        number += 1
        free = f"{name}-{number}"
    taken.add(free.casefold())
    return free


def stem(name: str) -> str:
    """The file name of an image without its suffix, in one case."""
    folded = name.casefold()
    base, _, last = folded.rpartition(".")
    return base if f".{last}" in SUFFIXES else folded


def match_ids(records: Mapping[ImageId, T], known: Collection[ImageId]) -> dict[ImageId, T]:
    """The records under the ids of `known`, from which theirs may differ, see `match_names`."""
    by_text = {str(image): image for image in known}
    matched = match_names(map(str, records), by_text)
    return {
        image if image in known else by_text.get(matched.get(str(image), ""), image): record
        for image, record in records.items()
    }


def common_images(
    references: Collection[ImageId], files: Mapping[str, Collection[ImageId]], common_only: bool
) -> list[ImageId]:
    """The images to score, in the order of `references`.

    Raise if files differ, unless `common_only`.

    `files` are captions by image, keyed by their names in error messages.
    """
    for name, captions in files.items():
        missing = [image_id for image_id in references if image_id not in captions]
        extra = [image_id for image_id in captions if image_id not in references]
        problems = []
        if missing:
            of_all = f"{len(missing)} of {len(references)} images: {listed_ids(missing)}"
            problems.append(f"has no caption for {of_all}")
        if extra:
            problems.append(f"has {len(extra)} for images without references: {listed_ids(extra)}")
        if problems and not common_only:
            raise CaptioningError(
                f"{name} {'; and '.join(problems)}. Scores on a subset of the images are not "
                "comparable; common_only=true scores the images that all files share, and records "
                "how many"
            )
    images = [
        image for image in references if all(image in captions for captions in files.values())
    ]
    if not images:
        raise CaptioningError(
            f"{', '.join(files)} and the references have no image in common; ids of the "
            f"references: {listed_ids(list(references))}"
        )
    return images


def listed_ids(ids: Sequence[ImageId]) -> str:
    """Name the first ids, each in quotes if it is text."""
    return listed([f"{image_id!r:.60}" for image_id in ids])
