"""The trial of a tokenizer: a program of its own, which may be killed, on the tokenizer's JSON.

It imports little, to start at once.
"""

import resource
import string
import sys

HOSTILE = (
    "a",
    "\u0301",
    "\u4e2d",
    "\u0130",
    "\ufdfa",
    "\U0010ffff",
    string.printable,
    "a\u0301\u200d\u00e9\u1100\u1161\r\n\U0001f469\U0001f3fd",
)
"""Repeated: a word without end, marks, and characters that become several or have many bytes."""


def main(memory: int, seconds: int, characters: int) -> None:
    """Encode and decode hostile texts, and decode all pieces."""
    if sys.platform != "darwin":  # which refuses it
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(sys.stdin.buffer.read().decode())
    for text in HOSTILE:
        ids = tokenizer.encode(text * (characters // len(text))).ids
        tokenizer.decode(ids, skip_special_tokens=False)
    tokenizer.decode([*tokenizer.get_vocab().values()], skip_special_tokens=False)
    tokenizer.enable_truncation(512)
    tokenizer.encode("a" * characters)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
