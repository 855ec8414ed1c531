"""Hallucinated objects in captions of COCO's images: CHAIR.

B images. Source: Rohrbach et al., "Object Hallucination in Image Captioning", EMNLP 2018. An object
is there if it is annotated or if a reference names it; every mention in a caption counts.

`coco_objects.txt` has names of the 80 categories. It is not the published list, and scores by the
two differ a little:

- Names are searched from left to right, the longest first, and not in pairs of words that are
  listed apart: "hot dog" is no dog, "train track" no train, "tennis racket" one object.
- What only sounds like an object is listed and counts as none: "bed of lettuce", "ski slope",
  "coffee table".
- Words that are as often something else are left out: "seat", "glass", "plant", "board", "glove",
  "bag".
- "Orange" is a fruit in the plural and in names such as "orange slice", else a colour. A bow tie is
  neither a tie nor an error.
- What an animal may be in its family is no person right before the animal: "baby elephant", "mother
  cow".
"""

import hashlib
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path

from captioning.config.types import given_path
from captioning.data.readers.parsing import ImageId
from captioning.data.words import ENGLISH
from captioning.errors import CaptioningError, listed
from captioning.metrics.metric import (
    HALLUCINATION,
    Fields,
    Images,
    Metric,
    ScoreType,
    Texts,
    first_captions,
)
from captioning.metrics.statistics import MetricResult
from experiments.chair.objects import read_objects

OBJECTS = "CHAIR_OBJECTS"
"""The variable of the environment that names COCO's `instances_val2014.json`."""
NOTHING = "none"
RELATIVES = [
    "baby",
    "infant",
    "child",
    "kid",
    "mother",
    "mom",
    "mama",
    "father",
    "dad",
    "papa",
    "parent",
    "adult",
]
ANIMALS = ["bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe"]
IRREGULAR = {
    "child": "children",
    "goose": "geese",
    "mouse": "mice",
    "calf": "calves",
    "knife": "knives",
    "wife": "wives",
    "shelf": "shelves",
    "leaf": "leaves",
    "human": "humans",
    "sheep": "sheep",
    "aircraft": "aircraft",
}


@cache
def names() -> Mapping[tuple[str, ...], str]:
    """COCO's category of each name, a sequence of words in the singular, or `none`."""
    categories: dict[tuple[str, ...], str] = {}
    text = Path(__file__).with_name("coco_objects.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        category, _, more = line.partition(":")
        if not line.startswith("#"):
            called = [*more.split(","), *([category] if category != NOTHING else [])]
            categories |= {tuple(name.split()): category for name in called if name.strip()}
    return categories


@cache
def singulars() -> Mapping[str, str]:
    """The singular of each plural of a word in `names`."""
    words = {word for name in names() for word in name}
    return {plural: word for word in words for plural in plurals(word) if plural not in words}


def plurals(word: str) -> tuple[str, ...]:
    """Form the plurals of a noun."""
    if word in IRREGULAR:
        return (IRREGULAR[word],)
    if word.endswith("man"):
        return (word[:-3] + "men",)
    if re.search("[^aeiou]y$", word):
        return (word[:-1] + "ies",)
    if re.search("(s|x|z|ch|sh)$", word):
        return word + "es", word + word[-1] + "es"  # buses and busses
    return (word + "s",)


def mentions(caption: str) -> list[str]:
    """Return the category of each object that a caption names, in order."""
    words = []
    for word in re.findall("[a-z0-9]+(?:'[a-z]*)?", caption.lower()):
        bare = re.sub("'s?$", "", word)
        words.append(singulars().get(bare, bare))
    start, longest = 0, max(map(len, names()))
    categories: list[str] = []
    while start < len(words):
        candidates = (tuple(words[start : start + size]) for size in range(longest, 0, -1))
        name = next(filter(names().get, candidates), ())
        category = names().get(name, NOTHING)
        if category in ANIMALS and start and words[start - 1] in RELATIVES:
            categories.pop()
        categories.append(category)
        start += len(name or "-")
    return [category for category in categories if category != NOTHING]


class Chair(Metric):
    """CHAIR of images, by the categories that the file `OBJECTS` annotates in each of them."""

    name = "CHAIR"
    scores = (
        ScoreType("CHAIRi", HALLUCINATION, "%", best="min", per_image=True),
        ScoreType("CHAIRs", HALLUCINATION, "%", best="min", per_image=True),
        ScoreType("object recall", HALLUCINATION, "%", best="max", per_image=True),
    )
    languages = (ENGLISH,)
    tokenized = False

    def __init__(self, language: str = ENGLISH, timeout: float = 60.0):
        super().__init__(language, timeout)
        if language != ENGLISH:
            raise CaptioningError("it knows the English names of objects alone: leave it out")
        if not (file := os.environ.get(OBJECTS)):
            raise CaptioningError(
                f"it needs COCO's annotated objects: {OBJECTS}=instances_val2014.json"
            )
        self._file = given_path(file)
        with self._file.open("rb") as content:
            self._digest = hashlib.file_digest(content, "sha256").hexdigest()
        self._annotated: Mapping[ImageId, Collection[str]] = {}

    def start(self) -> None:
        """Read the file, which takes seconds."""
        if self._annotated:
            return
        annotated = read_objects(self._file)
        if unknown := {*chain.from_iterable(annotated.values())} - {*names().values()}:
            raise CaptioningError(
                f"these are not among the 80 categories of COCO: {listed(sorted(unknown))}"
            )
        self._annotated = annotated

    def signature(self, references: Texts) -> Fields:
        digest = hashlib.sha256(repr(sorted(names().items())).encode()).hexdigest()
        return {
            "truth": "instances+references",
            "objects": self._digest[:8],
            "names": digest[:8],
        }

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        ids = [image.image_id for image in images or ()]
        if absent := [f"{image!r:.60}" for image in ids if image not in self._annotated]:
            raise CaptioningError(
                f"objects are not known for {len(absent)} images: {listed(absent)}. The ids must "
                f"be COCO's, of the images that {self._file} is about"
            )
        rows, hallucinated = [], []
        for image, caption, texts in zip(ids, first_captions(captions), references, strict=True):
            there = {*self._annotated[image], *chain.from_iterable(map(mentions, texts))}
            named = mentions(caption)
            invented = [category for category in named if category not in there]
            recalled = len(there & {*named})
            rows.append([(len(invented), len(named)), (bool(invented), 1), (recalled, len(there))])
            hallucinated.append(list(dict.fromkeys(invented)))
        result = MetricResult.from_shares([score.name for score in self.scores], rows)
        return replace(result, hallucinated=hallucinated)
