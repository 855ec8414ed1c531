"""What a tokenizer from a stranger may consist of, before the library builds it.

A `tokenizer.json` lists steps that change text before it is cut into pieces, and steps that join
pieces again. Steps can double a text as often as they are listed, and a pattern can take longer
than anybody waits for, without an end that a signal reaches.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

from captioning.errors import CaptioningError, quoted
from captioning.files import GROWTH, MOST_STEPS

STEPS = {
    "normalizer": "BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, "
    "Prepend, Replace, Strip, StripAccents",
    "pre_tokenizer": "BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, "
    "Punctuation, Split, Whitespace, WhitespaceSplit",
    "decoder": "BPEDecoder, ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Strip, WordPiece",
}
ENDINGS = r"'s|'t|'re|'ve|'m|'ll|'d"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = (
    " {2,}",  # T5 and XLM-R
    r"\s+",  # CLIP, as the next
    rf"<\|startoftext\|>|<\|endoftext\|>|{ENDINGS}|[\p{{L}}]+|[\p{{N}}]|[^\s\p{{L}}\p{{N}}]+",
    rf"{ENDINGS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+",  # GPT-2
    rf"(?i:{ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{REST}",  # Llama 3
    rf"(?i:{ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{REST}",  # Qwen
)
"""Regular expressions, which are matched by backtracking: only those that are known to end."""


def checked_parts(text: str) -> str:
    """Return a tokenizer's JSON again, each key once; refuse steps that are not known to end.

    Steps may be unknown, too many, or let a text grow without bound.

    Args:
        text: JSON as `tokenizers` writes it.

    Raises:
        CaptioningError: it names the step.
        ValueError: it is no such JSON.
    """
    content = json.loads(text)
    for kind, known in STEPS.items():
        steps = list(_steps(content.get(kind)))
        if len(steps) > MOST_STEPS:
            raise CaptioningError(f"{kind}: {len(steps)} steps; at most {MOST_STEPS} are read")
        for step in steps:
            if step["type"] not in known.split(", "):
                raise CaptioningError(f"{kind}: {quoted(step['type'])} is none of {known}")
        if math.prod(map(_growth, steps)) > GROWTH:
            raise CaptioningError(f"{kind}: it makes texts more than {GROWTH} times as long")
    return json.dumps(content)


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    if part is not None and part["type"] == "Sequence":
        for members in part.values():
            for member in members if isinstance(members, list) else ():
                yield from _steps(member)
    elif part is not None:
        yield part


def _growth(step: dict[str, Any]) -> float:
    """How many times as long a step makes a text, at most."""
    pattern, added = step.get("pattern") or {}, len(step.get("content") or "")
    if (regular := pattern.get("Regex")) is not None:
        if regular not in PATTERNS:
            raise CaptioningError(f"the pattern {quoted(regular)} is not known to end: {PATTERNS}")
        return max(1, added)
    if step["type"] == "Prepend":
        return 1 + len(step["prepend"])
    replaced = len(pattern.get("String", " "))
    return max(1, added / replaced) if replaced else math.inf
