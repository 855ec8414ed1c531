"""Tokenizers of others: what they may consist of, and a trial before they are used.

A `tokenizer.json` lists steps that change text before it is cut into pieces, and steps that join
pieces again. Steps can double a text as often as they are listed, and a pattern can take longer
than anybody waits for, without an end that a signal reaches. Every tokenizer is opened here.
"""

import base64
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from captioning.errors import CaptioningError, naming, quoted
from captioning.files import (
    GROWTH,
    MAX_CHARACTERS,
    MAX_TEXT,
    MOST_STEPS,
    TRIAL,
    packaged_text,
    sha256,
)

STEPS = {
    "normalizer": "BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, "
    "Prepend, Replace, Strip, StripAccents",
    "pre_tokenizer": "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, "
    "Punctuation, Split, Whitespace, WhitespaceSplit",
    "decoder": "BPEDecoder, ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Strip, WordPiece",
    "post_processor": "BertProcessing, ByteLevel, RobertaProcessing, TemplateProcessing",
}
GROWTHS = {
    "BertNormalizer": 5,
    "BPEDecoder": 3,
    "ByteLevel": 4,
    "Lowercase": 1.5,
    "Metaspace": 5,
    "NFC": 3,
    "NFD": 3,
    "NFKC": 11,
    "NFKD": 11,
    "WordPiece": 2,
}
"""How many times as many bytes a step makes of a text at most; of other kinds it is computed."""
PATTERNS = dict(row.split("\t") for row in packaged_text(__package__, "patterns.txt").splitlines())
"""Regular expressions by family; as matching goes back, only those that are known to end."""
BROKEN = "this is no tokenizer"
TRIED: set[str] = set()
"""Digests of tokenizers that need no trial in this process: it was made, or they were trained."""


def open_tokenizer(text: str, trained_here: bool = False) -> Any:
    """Build a tokenizer from JSON as `tokenizers` writes it, after a trial unless it is our own.

    Raises:
        CaptioningError: it names the step, or the reason why there is no such tokenizer.
    """
    library = tokenizers_library()
    with naming(BROKEN):
        content = _checked_parts(text)
        digest = sha256(content)
        if not trained_here and digest not in TRIED:
            _try(content)
        TRIED.add(digest)
        return library.Tokenizer.from_str(content)


def tokenizers_library() -> Any:
    """The module `tokenizers`."""
    # Otherwise it warns in every process that is forked after it has encoded captions.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import tokenizers
    except ImportError as error:
        raise CaptioningError(
            "pieces of words need another package: pip install 'captioning[subwords]'"
        ) from error
    return tokenizers


def _checked_parts(text: str) -> str:
    """Return a tokenizer's JSON again, each key once, without padding and truncation.

    Steps are refused if they are not known to end, if they are too many, and if a text becomes more
    than `GROWTH` times as long by them.

    Raises:
        CaptioningError: it names the step.
        ValueError: it is no such JSON.
    """
    if len(text) > MAX_TEXT:
        raise CaptioningError(f"a tokenizer of {len(text):,} characters is too large")
    content = json.loads(text) | {"padding": None, "truncation": None}
    growth = 1.0
    for kind, known in STEPS.items():
        steps = list(_steps(content.get(kind)))
        if len(steps) > MOST_STEPS:
            raise CaptioningError(f"{kind}: {len(steps)} steps; at most {MOST_STEPS} are read")
        for step in steps:
            if step["type"] not in known.split(", "):
                raise CaptioningError(f"{kind}: {quoted(step['type'])} is none of {known}")
        if kind == "decoder":  # it gets pieces, and not what the steps before it have made
            growth = 1
        growth *= math.prod(map(_growth, steps))
        if growth > GROWTH:
            raise CaptioningError(f"{kind}: it makes texts more than {GROWTH} times as long")
    return json.dumps(content)


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    if part is None:
        return
    if part["type"] == "Sequence":
        for members in part.values():
            for member in members if isinstance(members, list) else ():
                yield from _steps(member)
    else:
        yield part


def _growth(step: dict[str, Any]) -> float:
    """How many times as many bytes a step makes of a text, at most."""
    if step["type"] == "Precompiled":
        table = base64.b64decode(step["precompiled_charsmap"])  # an index after its size, and texts
        texts = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
        return max(1, *map(len, texts))
    if step["type"] == "Prepend":
        return 1 + len(step["prepend"].encode())
    pattern, added = step.get("pattern") or {}, len((step.get("content") or "").encode())
    if (regular := pattern.get("Regex")) not in (None, *PATTERNS.values()):
        families = ", ".join(PATTERNS)
        raise CaptioningError(
            f"the pattern {quoted(regular)} is not known to end, as those of {families} are"
        )
    replaced = len(pattern.get("String", " ").encode())  # a regular expression: a byte or more
    return max(GROWTHS.get(step["type"], 1), added / replaced if replaced else math.inf)


def _try(content: str) -> None:
    """Refuse a tokenizer that takes too much of memory or time with hostile texts, or fails.

    Nothing else ends it: signals do not reach compiled code.
    """
    memory, seconds = TRIAL
    trial = str(Path(__file__).with_name("trial.py"))
    limits = map(str, (memory, seconds, MAX_CHARACTERS))
    made = subprocess.run(
        [sys.executable, "-P", trial, *limits], input=content, capture_output=True, text=True
    )
    if made.returncode:
        said = made.stderr.strip().rpartition("\n")[2]
        raise CaptioningError(
            f"it fails with texts of {MAX_CHARACTERS:,} characters, or needs more than {memory:,} "
            f"bytes or {seconds} seconds for them ({quoted(said)})"
        )
