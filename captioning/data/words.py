"""Written captions to words, for data sets that bring no tokens of their own; nothing here starts Java."""

import re
import unicodedata

# Accents and vowel signs that have no composed form: without them a Hindi word would fall apart. All that living
# scripts use lies below 0x10000.
_MARKS = "".join(char for char in map(chr, range(0x10000)) if unicodedata.category(char).startswith("M"))
_LETTERS = rf"(?:[^\W_]++[{_MARKS}]*+)++"
_WORD = re.compile(f"{_LETTERS}(?:'{_LETTERS})*+")


def split_words(text: str) -> tuple[str, ...]:
    """The words of a caption: lower case, letters and digits of any script, apostrophes only inside a word.

    Everything else separates: `"Two dogs' well-known T-shirts, don't ask!"` gives
    `two dogs well known t shirts don't ask`. The typographic apostrophe counts as the plain one, and a letter
    with a combining accent as the composed letter, so that one word has one spelling.
    """
    composed = unicodedata.normalize("NFC", text.lower())
    return tuple(_WORD.findall(composed.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")))
