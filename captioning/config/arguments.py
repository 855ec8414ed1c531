"""Arguments of a command before Hydra parses them: text stays the text that was given.

Hydra's grammar reads a value as a number, a list or a name. A path or a word may look like any of
these (`1e5`, `a,b`, `x[1]`) or not be readable at all (`lr=0.003/best.ckpt`, `My Drive (1)`).
"""

import contextlib
import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args, get_origin

from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from captioning.decoding.filters import kind_of_words
from captioning.errors import CaptioningError

OPTIONS = get_args_parser()._option_string_actions
"""Of Hydra, by name."""
GROUP_TEXTS = re.compile(
    r"name|data\.(root|json|images|name|language|tokens)"
    r"|data\.reader\.([\w.]+\.)?(root|annotations|captions|objects|source|target|images|sentences"
    r"|caption_columns|name|config|(image|id)_column)"
    r"|data\.reader\.((annotations|captions)\.\w+|folders|language)"
    r"|(backbone|model)\.([\w.]+\.)?(name|node|path|root|weights)|backbone\.whole"
    r"|logger\.\w+\.(project|name|entity|group|job_type|notes|save_dir|tags|path|folder)"
    r"|callbacks\.\w+\.(folder|monitor)"
    r"|hydra\.(run|sweep)\.(dir|subdir)"
)
"""Settings in groups that are paths, names or words."""
SETTING = re.compile(r"(?P<key>\+{0,2}[\w./@:$-]+)=(?P<value>.*)", re.DOTALL)
SWEEP = re.compile(r"(choice|glob|range|interval|tag|sort|shuffle)\(.*\)", re.DOTALL)
OPEN, CLOSED = "([{", ")]}"


def text_settings(types: Iterable[tuple[str, object]]) -> frozenset[str]:
    """Keys of the settings whose values, or the elements of their lists, are texts."""
    return frozenset(key for key, hint in types if _kinds(hint) == {"text"})


def _kinds(hint: object) -> set[str]:
    if hint in (str, Path) or kind_of_words(hint):
        return {"text"}
    if hint in (int, float, bool):
        return {"number"}
    if get_origin(hint) in (Literal, dict, Mapping):
        return set()
    return set[str]().union(*(_kinds(part) for part in get_args(hint)))


def quote_texts(settings: Iterable[str], texts: Collection[str], sweep: bool) -> list[str]:
    """Quote the values that Hydra would not read as the text that they are.

    Args:
        settings: those of the command line.
        texts: settings of the command that are paths, names or words, beside `GROUP_TEXTS`.
        sweep: whether commas separate values.
    """
    readable = []
    for given in settings:
        if setting := SETTING.fullmatch(given):
            key = setting["key"].lstrip("+")
            text = key in texts or GROUP_TEXTS.fullmatch(key) is not None
            given = f"{setting['key']}={_readable(setting['value'], text, sweep)}"
        readable.append(given)
    return readable


def positionals_to_override(key: str, arguments: Sequence[str]) -> list[str]:
    """The arguments with the words among them (`a.jpg b.jpg`) as one setting, `KEY=[WORD,WORD]`."""
    # a leading ~ leaves out a part, ~/ is a folder; a sweep's run folders have names with settings
    given = [word for word in arguments if re.match(r"~(?!/)", word) or SETTING.fullmatch(word)]
    settings = [word for word in given if not os.path.exists(word)]  # noqa: PTH110, some are too long for a path
    words = [word for word in arguments if word not in settings]
    if not words:
        return settings
    if any(setting.startswith(f"{key}=") for setting in settings):
        raise CaptioningError(
            f"{words[0]:.200} and {key}= are both given: name all of them in {key}=[A,B], or none"
        )
    # What looks like an interpolation is none.
    texts = [quoted_text(word.replace("${", "\\${")) for word in words]
    return [*settings, f"{key}=[{','.join(texts)}]"]


def quoted_text(text: str) -> str:
    """Quote a text as Hydra's grammar has it."""
    return QuotedString(text, Quote.single).with_quotes()


def _readable(value: str, text: bool, sweep: bool) -> str:
    """The value as Hydra reads it rightly.

    A text is quoted, and so is what Hydra cannot read, element by element.
    """
    if value in ("", "null", "???") or value.startswith("${"):
        return value
    if text and os.path.exists(value):  # noqa: PTH110, some are too long for a path
        return quoted_text(value)
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    if (is_quoted or (sweep and SWEEP.fullmatch(value))) and _parses(value):
        return value
    if value[0] == "[" and value[-1] == "]":
        elements = list(split_elements(value[1:-1]))
        return f"[{','.join(_readable(element, text, False) for element in elements)}]"
    if sweep and "," in value:
        return ",".join(_readable(element, text, False) for element in split_elements(value))
    return quoted_text(value) if text or not _parses(value) else value


def split_elements(text: str) -> Iterator[str]:
    """Split at commas outside brackets and quotes, without the blanks around an element."""
    depth = 0
    quote = ""
    start = 0
    for index, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote and text[index - 1] != "\\" else quote
        elif letter in "'\"" and not text[start:index].strip():
            # an apostrophe within a word opens nothing
            quote = letter
        elif letter in OPEN:
            depth += 1
        elif letter in CLOSED:
            depth -= 1
        elif letter == "," and depth <= 0:
            yield text[start:index].strip()
            start = index + 1
    if start or text.strip():
        yield text[start:].strip()


def _parses(value: str) -> bool:
    try:
        return bool(parse_overrides([f"key={value}"]))
    except HydraException:
        return False


def parse_overrides(arguments: Iterable[str]) -> list[Override]:
    """The arguments as Hydra reads them."""
    return OverridesParser.create().parse_overrides(list(arguments))


def command_line(arguments: Iterable[str]) -> str:
    """`captioning run` with its arguments as a shell reads them, without needless quotes."""
    return shlex.join(["captioning", "run", *map(_unquoted, arguments)])


def _unquoted(argument: str) -> str:
    bare = argument.replace("'", "")
    with contextlib.suppress(HydraException):
        one, other = parse_overrides([argument, bare])
        return bare if one.value() == other.value() else argument
    return argument


def split_options(arguments: Iterable[str]) -> tuple[list[str], list[str]]:
    """Settings, which Hydra takes in one row, and options with their values."""
    settings, options, before = list[str](), list[str](), ""
    for argument in arguments:
        takes = OPTIONS[before].nargs if before in OPTIONS else 0
        of_option = takes is None or (takes == "?" and "=" not in argument)
        (options if of_option or argument.startswith("-") else settings).append(argument)
        before = argument
    return settings, options


def search_path() -> list[str]:
    """Hydra's overrides of the command line that add folders of configurations."""
    given = HydraConfig.get().overrides.hydra
    return [override for override in given if override.startswith("hydra.searchpath=")]


def given_keys() -> list[str]:
    """Settings and groups that the command line sets."""
    return [override.key_or_group for override in parse_overrides(HydraConfig.get().overrides.task)]
