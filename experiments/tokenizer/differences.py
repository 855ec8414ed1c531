"""Print where the tokeniser in Python and Stanford's differ, and which texts go to Java.

python experiments/tokenizer/differences.py [--changed N] FILE [FILE ..]
"""

import argparse
import json
import random
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from captioning.data.readers.parsing import read_lines
from captioning.metrics.java import ptb_tokenize
from captioning.metrics.ptb import CHARACTERS, CHUNK, EXCEPTIONS, is_proved, tokens

KEYS = ("caption", "raw")


def texts_in(node: Any) -> Iterator[str]:
    """Yield all captions: the values of `KEYS`, wherever they are."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in KEYS and isinstance(value, str):
                yield value
            else:
                yield from texts_in(value)
    elif isinstance(node, list):
        for value in node:
            yield from texts_in(value)


def read(path: Path) -> list[str]:
    """Captions of JSON (Karpathy's, COCO's, results), of JSON lines, or of plain lines."""
    if path.suffix == ".json":
        return list(texts_in(json.loads(path.read_text(encoding="utf-8"))))
    lines = [line for _, line in read_lines(path)]
    if ".jsonl" in path.suffixes:
        return list(texts_in([json.loads(line) for line in lines]))
    return lines


def changed(text: str, draw: random.Random) -> str:
    """The text with one to three random characters more, fewer or replaced."""
    for _ in range(draw.randint(1, 3)):
        place, length = draw.randint(0, len(text)), draw.randint(0, 1)
        inserted = draw.choice(["", *string.printable, *string.punctuation * 2, *"''''....----"])
        text = text[:place] + inserted + text[place + length :]
    return text


def kind(text: str) -> str:
    """Why a text goes to Java: its first reason."""
    lower = text.lower()
    if not CHARACTERS.fullmatch(text):
        return "other characters"
    if found := EXCEPTIONS.search(lower):
        return f"exception {found[0]!r}"
    chunk = next(chunk for chunk in lower.split() if not CHUNK.fullmatch(chunk))
    return "chunk of the form " + re.sub("[a-z]+", "a", re.sub("[0-9]+", "9", chunk))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument(
        "--changed", type=int, default=0, help="also N random changes of each caption"
    )
    arguments = parser.parse_args()
    given = [text for path in arguments.files for text in read(path)]
    draw = random.Random(0)
    texts = given + [changed(text, draw) for text in given for _ in range(arguments.changed)]
    proved = [is_proved(text) for text in texts]
    theirs = ptb_tokenize(texts, 600)
    differing = 0
    for text, certain, expected in zip(texts, proved, theirs, strict=True):
        if certain and tokens(text) != expected:
            differing += 1
            print(f"{text!r}\n  Java    {expected}\n  Python  {tokens(text)}")
    unproved = [
        (text, expected)
        for text, certain, expected in zip(texts, proved, theirs, strict=True)
        if not certain
    ]
    same = sum(tokens(text) == expected for text, expected in unproved)
    kinds: dict[str, list[str]] = {}
    for text, _ in unproved:
        kinds.setdefault(kind(text), []).append(text)
    print(
        f"files      {len(arguments.files):,}\ntexts      {len(texts):,}\nproved     "
        f"{sum(proved):,}"
    )
    print(
        f"differing  {differing:,}\nto Java    {len(unproved):,}, of which {same:,} would have the "
        "same tokens\n"
    )
    for name, members in sorted(kinds.items(), key=lambda item: -len(item[1]))[:40]:
        print(f"{len(members):7,}  {name:<32} {members[0][:80]!r}")
    return int(differing > 0)


if __name__ == "__main__":
    raise SystemExit(main())
