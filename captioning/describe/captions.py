"""Numbers about captions and words, and the captions that look wrong."""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from captioning.data.caption_words import CaptionWords
from captioning.data.example import (
    Reference,
    Splits,
    image_names,
    reference_counts,
    reference_words,
)
from captioning.data.vocabulary import Vocabulary
from captioning.data.words import SCRIPTS
from captioning.metrics.statistics import is_constant
from captioning.metrics.wording import BASE, caption_keys, is_among
from captioning.progress import progress_bar

Locations = defaultdict[str, list[str]]
"""Captions or photographs by what is wrong with them, as they are shown."""
LISTED = 50  # words or captions
LONGEST = 40  # words of a caption, of which more count as these
SHORT = 2  # words
FEW = 0.01  # the share of captions that may be short, or of words that may be English elsewhere
# images of a split (D); the standard error of a mean over fewer is a seventh of an image's
# deviation
ENOUGH = 50
# letters per word, of scripts without blanks; words of Thai have four or five, of Chinese two
UNSPLIT = 6
TOLERANCE = 1e-3  # of a box, in widths or heights of the photograph
UNSPACED = re.compile(f"[{SCRIPTS}]")
# the last is of Flickr30k Entities
MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|&#?\w+;|https?://|\\u[0-9a-fA-F]{4}|\\[nt]|\[/?EN#\d")
FILE_NAME = re.compile(r"\S+\.(?:jpe?g|png|webp|tiff?)", re.IGNORECASE)
LIST = re.compile(r"\s*\[\s*(['\"]).*\1\s*,?\s*\]\s*", re.DOTALL)  # as Python or JSON writes one
# the replacement character, and UTF-8 that was read as Latin-1 or Windows-1252
DAMAGED = re.compile("\ufffd|[\u00c2-\u00c3][\u0080-\u00bf]|\u00e2\u20ac|\u00e2\u0080")
OF_ENGLISH = ("the", "of", "is", "are", "with", "and")  # an eighth of Flickr8k's words
ALPHABETS = {"LATIN", "CYRILLIC", "GREEK"}  # whose letters look alike


def describe_captions(
    splits: Splits, vocabulary: Vocabulary, max_words: int, root: str | Path | None
) -> tuple[dict[str, Any], Locations]:
    """Numbers of each split and of all, and places of what looks wrong.

    Words are of the training split.

    Photographs are named relative to the folder `root`.
    """
    every = CaptionWords.of(chain.from_iterable(map(reference_words, splits.values())))
    keys = np.concatenate([caption_keys(part)[0][: len(part)] for part in every.parts()])
    sizes = {name: reference_counts(examples) for name, examples in splits.items()}
    of_all = np.concatenate([*sizes.values()])
    photograph = np.repeat(np.arange(len(of_all), dtype=np.uint64), of_all)
    # a photograph's first of equal captions
    once = np.sort(np.unique(keys + BASE * photograph, return_index=True)[1])
    different, first, photographs = np.unique(keys[once], return_index=True, return_counts=True)
    frequent = [
        (vocabulary.language.join(every[once[first[i]]]), int(photographs[i]))
        for i in np.lexsort((first, -photographs))[:LISTED]
        if photographs[i] > 1
    ]
    is_shared = photographs[np.searchsorted(different, keys)] > 1
    counts = _Counts(every, np.bincount(once, minlength=len(keys)), is_shared, vocabulary)
    rows, end = {"all": slice(0, len(every))}, 0
    for name, of_split in sizes.items():
        rows[name], end = slice(end, end + of_split.sum()), end + of_split.sum()
    words = every.part(rows["train"]).counts()
    locations, seen = _locations(splits, words, max_words, root)
    seen["all"], sizes["all"] = sum(seen.values(), Counter()), of_all
    numbers = {
        name: counts.of_rows(rows[name], sizes[name], seen[name], max_words) for name in rows
    }
    for name in ("val", "test"):
        trained = is_among(keys[rows[name]], keys[rows["train"]])
        numbers[name]["also in training"] = int(trained.sum())
    of_words = counts.of_words(rows["train"], words)
    return {"splits": numbers, "words": of_words, "frequent captions": frequent}, locations


@dataclass(frozen=True)
class _Counts:
    """Arrays of the captions of all splits."""

    every: CaptionWords[str]
    is_first: np.ndarray  # of equal captions of a photograph
    is_shared: np.ndarray  # by another photograph
    vocabulary: Vocabulary

    def of_rows(
        self, rows: slice, references: np.ndarray, seen: Counter[str], max_words: int
    ) -> dict[str, Any]:
        """Numbers of captions in a row, of photographs with that many references."""
        captions = self.every.part(rows)
        lengths = captions.lengths
        numbers: dict[str, Any] = {
            "photographs": len(references),
            "captions": len(lengths),
            "captions per photograph": quantiles(references),
            "words per caption": quantiles(lengths),
            "lengths": dict(enumerate(np.bincount(lengths.clip(max=LONGEST)).tolist())),
            "longer than max_words": int((lengths > max_words).sum()),
            "without a word": seen["wordless"],
            "twice for a photograph": len(lengths) - int(self.is_first[rows].sum()),
            "also for another photograph": int(self.is_shared[rows].sum()),
            "also in training": None,
            "different words": len(captions.counts()),
            "unknown words": self.vocabulary.unknown(captions),
        }
        if self.vocabulary.pieces:
            numbers["pieces per caption"] = quantiles(self.vocabulary.encode_all(captions).lengths)
        return numbers | {"boxes": seen["boxes"]}

    def of_words(self, rows: slice, words: Counter[str]) -> dict[str, Any]:
        """Numbers of the `words` of the training captions."""
        unknown = sorted(word for word in words if not self.vocabulary.knows(word))
        of_english = sum(words[word] for word in OF_ENGLISH)
        pieces = self.vocabulary.encode_all(self.every.part(rows)).lengths
        return {
            "known": len(words) - len(unknown),
            "vocabulary": f"{len(self.vocabulary.words):,} {self.vocabulary.unit}",
            "pieces per word": int(pieces.sum()) / words.total(),
            "different": len(words),
            "of English": of_english / words.total(),
            "once": sum(count == 1 for count in words.values()),
            "frequent": words.most_common(LISTED),
            "unknown": unknown[:: 1 + len(unknown) // LISTED],
        }


def quantiles(values: Sequence[float] | np.ndarray) -> list[float]:
    """The least of the values, those at 5, 50 and 95 %, and the most; [] of none."""
    if not len(values):
        return []
    return np.quantile(values, (0, 0.05, 0.5, 0.95, 1), method="inverted_cdf").tolist()


def _locations(
    splits: Splits, words: Collection[str], max_words: int, root: str | Path | None
) -> tuple[Locations, dict[str, Counter[str]]]:
    """Places of what looks wrong; of each split, the captions without words, and boxes."""
    locations, captions, of_examples = Locations(list), 0, dict[str, Counter[str]]()
    bar = progress_bar("captions read", sum(map(len, splits.values())), "photograph", delay=2)
    for split, examples in splits.items():
        numbers = of_examples[split] = Counter()
        captioned = any(example.references for example in examples)
        if captioned and split != "train":
            if is_constant([list(reference_words([e])) for e in examples]):
                locations["constant"].append(split)
            elif len(examples) < ENOUGH:
                locations["tiny"].append(f"{split}: {len(examples)}")
        for example in examples:
            bar.update()
            captions += len(example.references)
            numbers["wordless"] += example.wordless
            numbers["boxes"] += sum(len(reference.nouns) for reference in example.references)
            found = [
                (kind, f": {reference.text}")
                for reference in example.references
                for kind in _kinds(reference)
            ]
            lengths = [len(words) for words in reference_words([example])]
            if captioned and split == "train" and min(lengths, default=math.inf) > max_words:
                found.append(("left out", ""))
            if found:
                name = image_names([example], root)[0] or f"{split} {example.image_id}"
                for kind, text in found:
                    locations[kind].append(name + text)
    bar.close()
    for kind in ("short", "unsplit"):
        if len(locations[kind]) <= FEW * captions:
            del locations[kind]
    spellings = defaultdict(list)
    for word in words:
        spellings[word.lower()].append(word)
    several = [spelt for spelt in spellings.values() if len(spelt) > 1]
    locations["capital letters"] = [", ".join(spelt) for spelt in several]
    locations["mixed alphabets"] = [word for word in words if _mixes_alphabets(word)]
    return locations, of_examples


def _mixes_alphabets(word: str) -> bool:
    if word.isascii():
        return False
    scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in word}
    return len(ALPHABETS & scripts) > 1


def text_faults(text: str, words: Sequence[str]) -> Iterator[str]:
    """Name the faults of a caption and its words."""
    letters = 0 if text.isascii() else len(UNSPACED.findall("".join(words)))
    if letters > UNSPLIT * len(words):
        yield "unsplit"
    elif len(words) <= SHORT and not letters:
        yield "short"
    if not words:
        yield "empty"
    if FILE_NAME.fullmatch(text.strip()):
        yield "file names"
    if LIST.fullmatch(text):
        yield "lists"
    if MARKUP.search(text):
        yield "markup"
    if text.isascii():
        return
    if DAMAGED.search(text):
        yield "damaged letters"
    if not unicodedata.is_normalized("NFC", " ".join((text, *words))):
        yield "decomposed"


def _kinds(reference: Reference) -> Iterator[str]:
    """Name the faults of a caption and its boxes."""
    yield from text_faults(reference.text, reference.words)
    for noun in reference.nouns:
        left, top, right, bottom = noun.box
        inside = (
            -TOLERANCE <= left < right <= 1 + TOLERANCE
            and -TOLERANCE <= top < bottom <= 1 + TOLERANCE
        )
        if not (inside and 0 <= noun.word < len(reference.words)):
            yield "boxes"
