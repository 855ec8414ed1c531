"""Numbers about captions and words, and the captions that look wrong."""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
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
from captioning.metrics.wording import caption_keys, is_among
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
    words_of_splits = map(reference_words, splits.values())
    counts = _Counts(
        CaptionWords.of(chain.from_iterable(words_of_splits)),
        {name: reference_counts(examples) for name, examples in splits.items()},
        vocabulary,
        max_words,
    )
    words = counts.captions("train").counts()
    locations, of_examples = _locations(splits, words, max_words, root)
    of_examples["all"] = sum(of_examples.values(), Counter())
    numbers = {name: counts.of_split(name, of_examples[name]) for name in ("all", *splits)}
    of_words, frequent = counts.of_words(words), counts.frequent()
    return {"splits": numbers, "words": of_words, "frequent captions": frequent}, locations


class _Counts:
    """Numbers of captions, as arrays of those of all splits."""

    def __init__(
        self,
        every: CaptionWords[str],
        references: Mapping[str, np.ndarray],
        vocabulary: Vocabulary,
        max_words: int,
    ):
        self._every, self._vocabulary, self._max_words = every, vocabulary, max_words
        of_all = np.concatenate([*references.values()])
        self._references = {"all": of_all, **references}  # of each photograph
        ends = dict(zip(references, accumulate(map(sum, references.values())), strict=True))
        self._rows = {"all": slice(0, len(every))} | {
            name: slice(ends[name] - references[name].sum(), ends[name]) for name in references
        }
        self._keys = np.concatenate([caption_keys(part)[0][: len(part)] for part in every.parts()])
        photograph = np.repeat(np.arange(len(of_all)), of_all)
        order = np.lexsort((self._keys, photograph))
        same = (np.diff(self._keys[order]) == 0) & (np.diff(photograph[order]) == 0)
        self._is_repeated = np.zeros(len(every), bool)
        self._is_repeated[order[1:][same]] = True

    @cached_property
    def _photographs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of different captions, ascending keys, a caption and the number of its photographs."""
        once = np.flatnonzero(~self._is_repeated)
        keys, first, photographs = np.unique(self._keys[once], True, return_counts=True)
        return keys, once[first], photographs

    def captions(self, name: str) -> CaptionWords[str]:
        """Those of a split, or of all."""
        return self._every.part(self._rows[name].start, self._rows[name].stop)

    def frequent(self) -> list[tuple[str, int]]:
        """The captions of several photographs, the most frequent first."""
        _, captions, photographs = self._photographs
        most = np.lexsort((captions, -photographs))[:LISTED]
        join = self._vocabulary.language.join
        return [
            (join(self._every[captions[i]]), int(photographs[i]))
            for i in most
            if photographs[i] > 1
        ]

    def of_split(self, name: str, of_examples: Counter[str]) -> dict[str, Any]:
        """Numbers of the captions of a split; of tested ones, how many were trained on."""
        rows, captions, references = self._rows[name], self.captions(name), self._references[name]
        keys, _, photographs = self._photographs
        others = photographs[np.searchsorted(keys, self._keys[rows])]
        lengths = captions.lengths
        numbers: dict[str, Any] = {
            "photographs": len(references),
            "captions": len(lengths),
            "captions per photograph": quantiles(references),
            "words per caption": quantiles(lengths),
            "lengths": dict(enumerate(np.bincount(lengths.clip(max=LONGEST)).tolist())),
            "longer than max_words": int((lengths > self._max_words).sum()),
            "without a word": of_examples["wordless"],
            "twice for a photograph": int(self._is_repeated[rows].sum()),
            "also for another photograph": int((others > 1).sum()),
            "also in training": None,
            "different words": len(captions.counts()),
            "unknown words": self._vocabulary.unknown(captions),
        }
        if name in ("val", "test"):
            trained = self._keys[self._rows["train"]]
            numbers["also in training"] = int(is_among(self._keys[rows], trained).sum())
        if self._vocabulary.pieces:
            pieces = self._vocabulary.encode_all(captions).lengths
            numbers["pieces per caption"] = quantiles(pieces)
        return numbers | {"boxes": of_examples["boxes"]}

    def of_words(self, words: Counter[str]) -> dict[str, Any]:
        """Numbers of the `words` of the training captions."""
        unknown = sorted(word for word in words if not self._vocabulary.knows(word))
        of_english = sum(words[word] for word in OF_ENGLISH)
        pieces = self._vocabulary.encode_all(self.captions("train")).lengths
        return {
            "known": len(words) - len(unknown),
            "vocabulary": f"{len(self._vocabulary.words):,} {self._vocabulary.unit}",
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
    if not text.isascii() and DAMAGED.search(text):
        yield "damaged letters"
    if not text.isascii() and not unicodedata.is_normalized("NFC", " ".join((text, *words))):
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
