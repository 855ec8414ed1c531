"""Findings that would silently hurt a run, with advice: the sentences of `findings.csv`."""

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from captioning.data.words import ENGLISH
from captioning.describe.captions import FEW, Locations, text_faults
from captioning.errors import quoted
from captioning.files import packaged_text

MOST = 0.5  # of the training captions: more that are too long are serious (D)
GRADES = {
    "serious": "a run stops, or its scores are not what they seem",
    "check": "it probably costs quality",
    "note": "it may be as it should be",
}

OF_TEXTS = ("empty", "file names", "lists", "damaged letters", "markup", "decomposed")
"""Faults that change the scores of captions or of references."""


@dataclass(frozen=True)
class Finding:
    """A fault of the data, with advice and places."""

    kind: str
    grade: str
    what: str
    advice: str
    where: list[str]


def find_problems(
    numbers: Mapping[str, Any], locations: Locations, refusal: str = ""
) -> list[Finding]:
    """The findings, the most serious first; `refusal` is why there is no vocabulary."""
    files, train = numbers["photographs"], numbers["splits"]["train"]
    caption, images = (numbers["frequent captions"] or [("", 0)])[0]
    size, alike = _only_size(files)
    amounts: dict[str, float] = {kind: len(where) for kind, where in locations.items()}
    amounts |= _amounts(numbers, refusal)
    amounts["squashed"] = alike if alike > 1 else 0
    if images > 10:
        amounts["same caption"] = images / numbers["splits"]["all"]["photographs"]
    low, high = files.get("16-bit range") or (0, 0)
    words = {
        "refusal": refusal,
        "size": size,
        "caption": caption,
        "images": images,
        "low": low,
        "high": high,
        "max_words": numbers["settings"]["max_words"],
        "most": train["words per caption"][3],
    }
    findings = []
    for row in _sentences():
        kind = row["kind"]
        amount = amounts.get(kind, 0)
        if amount > float(row["above"]):
            what, advice = row["what"].format(n=amount, **words), row["advice"].format(**words)
            findings.append(Finding(kind, row["grade"], what, advice, locations[kind]))
    return findings


def _only_size(files: Mapping[str, Any]) -> tuple[str, int]:
    """The size of all photographs if it is one and square, and how many have it; not of scenes."""
    if not files or files["drawn"] or [*files["shapes"]] != ["1.0"]:
        return "", 0
    sizes = files["sizes"]
    return sizes[0] if len(sizes) == 1 else ("", 0)


def _amounts(numbers: Mapping[str, Any], refusal: str) -> dict[str, float]:
    """How much there is of what numbers alone tell; those of captions are shares of them."""
    every, train, val, test = (numbers["splits"][name] for name in ("all", "train", "val", "test"))
    is_english = numbers["settings"]["language"] == ENGLISH
    long = train["longer than max_words"] / train["captions"]
    return {
        "no vocabulary": bool(refusal),
        "unknown": 0 if refusal else max(val["unknown words"], test["unknown words"]),
        "not English": is_english and numbers["words"]["of English"] < FEW,
        "wordless": every["without a word"],
        "too long" if long > MOST else "long": long,
        "twice": every["twice for a photograph"],
        "copied": test["also in training"] / max(test["captions"], 1),
        "one reference": test["captions per photograph"][2:3] == [1],
    }


def find_in_texts(texts: Sequence[str]) -> list[str]:
    """The findings of `OF_TEXTS` about texts to be scored, each with the first text that has it."""
    faulty = defaultdict(list)
    for text in texts:
        words = [word for word in text.split() if any(map(str.isalnum, word))]
        for kind in text_faults(text, words):
            faulty[kind].append(text)
    return [
        f"{row['what'].format(n=len(where))} of {len(texts):,}, such as {quoted(where[0])}"
        for row in _sentences()
        if row["kind"] in OF_TEXTS and (where := faulty[row["kind"]])
    ]


def _sentences() -> Iterator[dict[str, str]]:
    return csv.DictReader(packaged_text(__package__, "findings.csv").splitlines())
