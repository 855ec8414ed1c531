"""Reader of the JSON in which Karpathy's splits of Flickr8k, Flickr30k and COCO are published.

Layout: `{"images": [{"filename", "filepath"?, "cocoid"?, "imgid", "split", "sentences": [{"raw", "tokens"}, ...]}]}`.
Source of the splits: Karpathy and Fei-Fei, "Deep Visual-Semantic Alignments for Generating Image Descriptions", 2015.
"""

import json
import os
from collections import defaultdict
from pathlib import Path, PurePath
from typing import Any

from captioning.data.example import Example, Reference
from captioning.data.words import split_words
from captioning.errors import CaptioningError

SPLITS = ("train", "val", "test")


class KarpathyReader:
    """Photographs in a folder, captions and splits in one Karpathy JSON file.

    Args:
        root: folder of the photographs; a photograph is `root/filepath/filename`, or `root/filename` where the file
            names no `filepath`.
        annotations: the JSON file.
        restval: the split that images marked `restval` join (the 30,504 validation images of COCO that Karpathy left
            over); None leaves them out.
    """

    def __init__(self, root: str | Path, annotations: str | Path, restval: str | None = "train") -> None:
        self.root = Path(root).expanduser()
        self.annotations = Path(annotations).expanduser()
        if restval is not None and restval not in SPLITS:
            raise CaptioningError(f"restval={restval} is no split; allowed: {', '.join(SPLITS)} or null")
        self.restval = restval

    def __call__(self) -> dict[str, list[Example]]:
        """Read the file: `train`, `val` and `test`, in the file's order.

        The words are the file's `tokens`, or `split_words(raw)` where it has none. A sentence without words is left
        out: neither a model nor a scorer can read it.

        Raises:
            CaptioningError: root or JSON missing, JSON of another kind, a split without images, an image without
                captions, a path that leaves the root, an id that occurs twice, photographs absent on disk.
        """
        if not self.root.is_dir():
            raise CaptioningError(f"the folder of photographs {self.root} does not exist; set data.root to it")
        splits: dict[str, list[Example]] = {split: [] for split in SPLITS}
        for position, image in enumerate(self._images()):
            try:
                split = self._split(image["split"])
                if split is not None:
                    splits[split].append(self._example(image))
            except (KeyError, TypeError, AttributeError) as error:
                raise CaptioningError(
                    f"{self.annotations}: images[{position}] is not of the Karpathy layout "
                    f"(filename, split, sentences): {type(error).__name__} {error}"
                ) from error
        self._check(splits)
        return splits

    def _images(self) -> list[Any]:
        try:
            content = json.loads(self.annotations.read_bytes())
        except OSError as error:
            raise CaptioningError(
                f"cannot read the captions {self.annotations}: {error.strerror}; "
                "set data.annotations to the Karpathy JSON"
            ) from error
        except ValueError as error:
            raise CaptioningError(f"{self.annotations} is not JSON: {error}") from error
        if isinstance(content, dict) and "annotations" in content:
            raise CaptioningError(
                f"{self.annotations} is COCO's own layout (images and annotations apart), not Karpathy's; "
                "read it with the reader for COCO captions"
            )
        images = content.get("images") if isinstance(content, dict) else None
        if not isinstance(images, list):
            raise CaptioningError(f'{self.annotations} has no list "images"; data.annotations must be a Karpathy JSON')
        return images

    def _split(self, name: Any) -> str | None:
        if name == "restval":
            return self.restval
        if name not in SPLITS:
            raise CaptioningError(
                f"{self.annotations}: unknown split {name!r}; allowed: {', '.join(SPLITS)} and restval"
            )
        return str(name)

    def _example(self, image: dict[str, Any]) -> Example:
        name = image["filename"]
        below = PurePath(image.get("filepath", ""), name)
        if below.is_absolute() or ".." in below.parts or not below.name:
            raise CaptioningError(f"{self.annotations}: the path {str(below)!r} leaves the folder of photographs")
        references = []
        for sentence in image["sentences"]:
            words = tuple(map(str, sentence["tokens"])) if "tokens" in sentence else split_words(sentence["raw"])
            if words:
                references.append(Reference(str(sentence.get("raw", " ".join(words))), words))
        if not references:
            raise CaptioningError(f"{self.annotations}: {name} has no caption; remove it or give it one")
        return Example(image.get("cocoid", image.get("imgid", name)), self.root / below, tuple(references))

    def _check(self, splits: dict[str, list[Example]]) -> None:
        empty = [split for split, examples in splits.items() if not examples]
        if empty:
            raise CaptioningError(f"{self.annotations} has no images for {', '.join(empty)}; each split needs some")
        examples = [example for split in splits.values() for example in split]
        seen: dict[int | str, Path] = {}
        for example in examples:
            first = seen.setdefault(example.image_id, example.path)
            if first is not example.path:
                raise CaptioningError(
                    f"{self.annotations}: the image id {example.image_id} occurs twice, for {first} and {example.path}"
                )
        absent = _absent([example.path for example in examples])
        if absent:
            names = ", ".join(str(path.relative_to(self.root)) for path in absent[:3])
            raise CaptioningError(
                f"{len(absent)} of {len(examples)} photographs are not below {self.root}: {names}"
                f"{', ...' if len(absent) > 3 else ''}; set data.root to the folder that holds them"
            )


def _absent(paths: list[Path]) -> list[Path]:
    """Those of `paths` that are not on disk, by one listing per folder: a call per file takes minutes on a network."""
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        folders[path.parent].append(path)
    absent: list[Path] = []
    for folder, files in folders.items():
        try:
            with os.scandir(folder) as entries:
                present = {entry.name for entry in entries}
        except (FileNotFoundError, NotADirectoryError):
            present = set()
        absent += [path for path in files if path.name not in present]
    return absent
