"""Numbers about captions and words, and the captions that look wrong."""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from captioning.data.example import Example, Reference, Splits, image_names, reference_words
from captioning.data.vocabulary import Vocabulary
from captioning.data.words import SCRIPTS
from captioning.metrics.statistics import is_constant

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
    every = [example for examples in splits.values() for example in examples]
    images = Counter(chain.from_iterable(dict.fromkeys(reference_words([e])) for e in every))
    training = list(reference_words(splits["train"]))
    counts = _Counts(vocabulary, max_words, images, {*training})
    numbers = {
        name: counts.of_split(examples, name in ("val", "test"))
        for name, examples in {"all": every, **splits}.items()
    }
    frequent = [
        (vocabulary.language.join(caption), count)
        for caption, count in images.most_common(LISTED)
        if count > 1
    ]
    words = Counter(chain.from_iterable(training))
    of_words = counts.of_words(training, words)
    described = {"splits": numbers, "words": of_words, "frequent captions": frequent}
    return described, _locations(splits, words, max_words, root)


@dataclass(frozen=True)
class _Counts:
    """Numbers of captions, and what they are counted against."""

    vocabulary: Vocabulary
    max_words: int
    images: Counter[tuple[str, ...]]  # how many images have each caption
    trained: set[tuple[str, ...]]  # captions of the training split

    def of_split(self, examples: Sequence[Example], tested: bool) -> dict[str, Any]:
        """Numbers of the captions of some examples; of tested ones, how many were trained on."""
        captions = list(reference_words(examples))
        lengths = np.array([len(words) for words in captions], dtype=int)
        different = sum(len({*reference_words([example])}) for example in examples)
        references = [reference for example in examples for reference in example.references]
        numbers: dict[str, Any] = {
            "photographs": len(examples),
            "captions": len(captions),
            "captions per photograph": quantiles([len(example.references) for example in examples]),
            "words per caption": quantiles(lengths),
            "lengths": dict(enumerate(np.bincount(lengths.clip(max=LONGEST)).tolist())),
            "longer than max_words": int((lengths > self.max_words).sum()),
            "without a word": sum(example.wordless for example in examples),
            "twice for a photograph": len(captions) - different,
            "also for another photograph": sum(self.images[words] > 1 for words in captions),
            "also in training": None,
            "different words": len({*chain.from_iterable(captions)}),
            "unknown words": self.vocabulary.unknown(captions),
        }
        if tested:
            numbers["also in training"] = sum(words in self.trained for words in captions)
        if self.vocabulary.pieces:
            numbers["pieces per caption"] = quantiles([self.pieces[words] for words in captions])
        numbers["boxes"] = sum(len(reference.nouns) for reference in references)
        return numbers

    def of_words(self, captions: Sequence[tuple[str, ...]], words: Counter[str]) -> dict[str, Any]:
        """Numbers of the `words` of the training captions."""
        unknown = sorted(word for word in words if not self.vocabulary.knows(word))
        of_english = sum(words[word] for word in OF_ENGLISH)
        return {
            "known": len(words) - len(unknown),
            "vocabulary": f"{len(self.vocabulary.words):,} {self.vocabulary.unit}",
            "pieces per word": sum(self.pieces[caption] for caption in captions) / words.total(),
            "different": len(words),
            "of English": of_english / words.total(),
            "once": sum(count == 1 for count in words.values()),
            "frequent": words.most_common(LISTED),
            "unknown": unknown[:: 1 + len(unknown) // LISTED],
        }

    @cached_property
    def pieces(self) -> dict[tuple[str, ...], int]:
        """The number of the vocabulary's tokens in each caption."""
        return {words: len(self.vocabulary.encode(words)) for words in self.images}


def quantiles(values: Sequence[float] | np.ndarray) -> list[float]:
    """The least of the values, those at 5, 50 and 95 %, and the most; [] of none."""
    if not len(values):
        return []
    return np.quantile(values, (0, 0.05, 0.5, 0.95, 1), method="inverted_cdf").tolist()


def _locations(
    splits: Splits, words: Collection[str], max_words: int, root: str | Path | None
) -> Locations:
    locations, captions = Locations(list), 0
    for split, examples in splits.items():
        if not any(example.references for example in examples):
            continue
        if split != "train" and is_constant([list(reference_words([e])) for e in examples]):
            locations["constant"].append(split)
        elif split != "train" and len(examples) < ENOUGH:
            locations["tiny"].append(f"{split}: {len(examples)}")
        for example in examples:
            name = image_names([example], root)[0] or f"{split} {example.image_id}"
            captions += len(example.references)
            lengths = [len(words) for words in reference_words([example])]
            if split == "train" and min(lengths, default=math.inf) > max_words:
                locations["left out"].append(name)
            for reference in example.references:
                for kind in _kinds(reference):
                    locations[kind].append(f"{name}: {reference.text}")
    for kind in ("short", "unsplit"):
        if len(locations[kind]) <= FEW * captions:
            del locations[kind]
    spellings = defaultdict(list)
    for word in words:
        spellings[word.lower()].append(word)
    several = [spelt for spelt in spellings.values() if len(spelt) > 1]
    locations["capital letters"] = [", ".join(spelt) for spelt in several]
    locations["mixed alphabets"] = [word for word in words if _mixes_alphabets(word)]
    return locations


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
