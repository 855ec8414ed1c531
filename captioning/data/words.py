"""The words of a caption and the caption of words, by language.

| tokens | words | between two of them |
|---|---|---|
| `words` | letters, digits and inner apostrophes; outside English inner hyphens too | a blank |
| `characters` | each character of a script without blanks, else as above | nothing beside one |
| `my.split` | what the function returns, without punctuation | as the language is written |

A word of a user's function may contain single blanks, as those of Vietnamese do.
"""

import inspect
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cache
from typing import Annotated, Any, Self

from annotated_types import DocInfo
from pydantic import AfterValidator

from captioning.config.types import Modules, check_value, locate, validated_class
from captioning.errors import CaptioningError, naming, quoted

ENGLISH = "en"
WORDS = "words"
CHARACTERS = "characters"
UNSPACED = ("ja", "km", "lo", "my", "th", "zh")
"""Languages without blanks between words."""
ELIDING = ("ca", "fr", "ga", "it")
"""Languages whose apostrophe ends a word, as in `l' homme`: so does Moses' tokenizer, and with it
Multi30k.
"""
DOTLESS = ("az", "tr")
"""Languages in which the small letter of I has no dot."""

# Accents and vowel signs without a composed form; otherwise Hindi words would be split. Those of
# living scripts are below 0x10000.
_MARKS = "".join(
    char for char in map(chr, range(0x10000)) if unicodedata.category(char).startswith("M")
)
# Thai and Lao, Myanmar, Khmer, Han with radicals and iteration marks, kana, bopomofo
SCRIPTS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u312f\u31a0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Letters of scripts without blanks between words, as in a set of a regular expression."""
_JOINERS = "\u200c\u200d"  # within words of Persian and of Indian languages
_TYPOGRAPHIC = str.maketrans("\u2019\u2010\u2011", "'--")


def _code(value: str) -> str:
    if not re.fullmatch("[a-z]{2}", value):
        raise ValueError("must be the two letters of a language in ISO 639-1, such as en, de or zh")
    return value


def tokenizer_for(value: str) -> str:
    """The name itself, of a tokenizer that there is or that may be a user's."""
    if value not in (WORDS, CHARACTERS) and not re.fullmatch(r"\w+(\.\w+)+", value):
        raise ValueError("must be words, characters, or a function of your own such as my.split")
    return value


Code = Annotated[str, AfterValidator(_code), DocInfo("two letters of ISO 639-1, such as de")]
Tokens = Annotated[
    str, AfterValidator(tokenizer_for), DocInfo("words, characters, or a function such as my.split")
]


@validated_class
class Language:
    """How the captions of a data set are written.

    Args:
        code: of the language, ISO 639-1.
        tokens: `words`, `characters`, or the path of a function from a text to its words.
        modules: that `tokens` may name; None: any. A function is imported when a caption is split.
    """

    code: Code = ENGLISH
    tokens: Tokens = WORDS
    modules: Modules = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.tokens == CHARACTERS and self.code not in UNSPACED:
            raise CaptioningError(
                f"tokens={CHARACTERS} is for languages without blanks between words, "
                f"language={'|'.join(UNSPACED)}, and not for language={self.code}: set the "
                f"language, or tokens={WORDS}"
            )

    @classmethod
    def of(cls, data: Mapping[str, Any], modules: Modules = None) -> Self:
        """The language of a run's data settings, of English words unless set."""
        code, tokens = data.get("language") or ENGLISH, data.get("tokens") or WORDS
        check_value("data.language", code, Code)
        check_value("data.tokens", tokens, Tokens)
        return cls(code, tokens, modules)

    def split(self, text: str) -> tuple[str, ...]:
        """The words of a caption in Unicode's composed form, and in lower case unless a function of
        the user splits them.
        """
        if self.tokens not in (WORDS, CHARACTERS):
            return self._by_function(unicodedata.normalize("NFC", text))
        if self.code in DOTLESS:
            text = text.replace("\u0130", "i").replace("I", "\u0131")
        text = text.lower()
        plain = text.isascii()
        if not plain:
            text = unicodedata.normalize("NFC", text).translate(_TYPOGRAPHIC)
        return tuple(_pattern(self.code, self.tokens, plain).findall(text))

    def join(self, words: Iterable[str]) -> str:
        """The caption of words, as the language is written."""
        text = " ".join(words)
        return re.sub(self.no_space_pattern, "", text) if self.no_space_pattern else text

    def words_of(self, caption: str) -> tuple[str, ...]:
        """The words of a written caption.

        In English they are what blanks separate, punctuation with them.
        """
        return tuple(caption.split()) if self.code == ENGLISH else self.split(caption)

    @property
    def no_space_pattern(self) -> str:
        """A regular expression for the blanks that are not written; empty if all are."""
        # With tokens=words, blanks are what has made the words.
        if self.code in UNSPACED and self.tokens != WORDS:
            return f"(?<=[{SCRIPTS}]) | (?=[{SCRIPTS}])"
        return "(?<=') " if self.code in ELIDING else ""

    def _by_function(self, text: str) -> tuple[str, ...]:
        function: Any = locate("data.tokens", self.tokens, self.modules)
        if not inspect.isroutine(function):
            raise CaptioningError(f"data.tokens={self.tokens} is no function")
        with naming(f"data.tokens={self.tokens} fails for {quoted(text)}"):
            words = tuple(function(text))
        for word in words:
            if not isinstance(word, str):
                raise CaptioningError(
                    f"data.tokens={self.tokens} gives {word!r:.60}, no text, for {quoted(text)}"
                )
        return tuple(" ".join(word.split()) for word in words if any(map(str.isalnum, word)))


@cache
def _pattern(code: str, tokens: str, plain: bool) -> re.Pattern[str]:
    """Of one word in lower case; plain apostrophes and hyphens.

    A `plain` one is for ASCII, which has no marks, and takes half of the time.
    """
    by_character = tokens == CHARACTERS
    letter = rf"(?:(?![{SCRIPTS}])[^\W_])" if by_character else r"[^\W_]"
    marks = re.sub(f"[{SCRIPTS}]", "", _MARKS) if by_character else _MARKS
    run = f"{letter}++" if plain else f"(?:{letter}++[{marks}]*+)++"
    inner = "'" if code == ENGLISH else f"{_JOINERS}-" if code in ELIDING else f"{_JOINERS}'-"
    word = f"{run}(?:[{inner}]{run})*+" + (f"(?:'(?={letter}))?+" if code in ELIDING else "")
    if by_character and not plain:
        word = rf"(?=[{SCRIPTS}])[^\W_][{_MARKS}]*+|{word}"
    return re.compile(word, re.ASCII if plain else 0)


ENGLISH_WORDS = Language()
"""English words."""


split_words = ENGLISH_WORDS.split
"""Split an English caption into lower-case words, in any script.

They are letters, digits and inner apostrophes.

`"Two dogs' well-known T-shirts, don't ask!"` gives `two dogs well known t shirts don't ask`.
Typographic apostrophes become plain ones, and letters with combining accents become composed
letters.
"""
