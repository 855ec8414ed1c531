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
    every, train, val, test = (numbers["splits"][name] for name in ("all", "train", "val", "test"))
    photographs = numbers["photographs"]
    squashed = photographs and [*photographs["shapes"]] == ["1.0"] and not photographs["drawn"]
    ((size, alike),) = (
        photographs["sizes"] if squashed and len(photographs["sizes"]) == 1 else [("", 0)]
    )
    caption, images = (numbers["frequent captions"] or [("", 0)])[0]
    amounts = {kind: len(where) for kind, where in locations.items()} | {
        "no vocabulary": bool(refusal),
        "unknown": 0 if refusal else max(val["unknown words"], test["unknown words"]),
        "not English": numbers["settings"]["language"] == ENGLISH
        and numbers["words"]["of English"] < FEW,
        "wordless": every["without a word"],
        "squashed": alike if alike > 1 else 0,
        "same caption": images / every["photographs"] if images > 10 else 0,
        "long": train["longer than max_words"] / train["captions"],
        "twice": every["twice for a photograph"],
        "copied": test["also in training"] / max(test["captions"], 1),
        "one reference": test["captions per photograph"][2:3] == [1],
    }
    if amounts["long"] > MOST:
        amounts["too long"] = amounts.pop("long")
    words = {"refusal": refusal, "size": size, "caption": caption, "images": images}
    words["low"], words["high"] = photographs.get("16-bit range") or (0, 0)
    words |= {"max_words": numbers["settings"]["max_words"], "most": train["words per caption"][3]}
    return [
        Finding(
            kind,
            row["grade"],
            row["what"].format(n=n, **words),
            row["advice"].format(**words),
            locations[kind],
        )
        for row in _sentences()
        if (n := amounts.get(kind := row["kind"], 0)) > float(row["above"])
    ]


def find_in_texts(texts: Sequence[str]) -> list[str]:
    """The findings of `OF_TEXTS` about texts to be scored, each with the first text that has it."""
    faulty = defaultdict(list)
    for text in texts:
        for kind in text_faults(text, text.split()):
            faulty[kind].append(text)
    return [
        f"{row['what'].format(n=len(where))} of {len(texts):,}, such as {quoted(where[0])}"
        for row in _sentences()
        if row["kind"] in OF_TEXTS and (where := faulty[row["kind"]])
    ]


def _sentences() -> Iterator[dict[str, str]]:
    return csv.DictReader(packaged_text(__package__, "findings.csv").splitlines())
