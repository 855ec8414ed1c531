"""Arguments of a command line that are no settings: photographs (`captioning predict a.jpg b.jpg`) and options."""

import itertools
from collections.abc import Sequence

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.types import Quote, QuotedString

from captioning.errors import CaptioningError, quoted


def as_setting(key: str, arguments: Sequence[str]) -> list[str]:
    """The arguments with the words among them as one setting, `KEY=[WORD,WORD]`; without words as they are.

    A word has no `=`, stands before the first option (`--cfg job`), and leaves out no part (`~PART`).

    Raises:
        CaptioningError: the setting is given too.
    """
    plain = list(itertools.takewhile(lambda argument: not argument.startswith("-"), arguments))
    words = [argument for argument in plain if _is_word(argument)]
    if not words:
        return list(arguments)
    settings = [argument for argument in plain if not _is_word(argument)]
    if any(setting.startswith(f"{key}=") for setting in settings):
        raise CaptioningError(f"{words[0]:.200} stands beside {key}=: give all of them in {key}=[A,B], or none")
    return [*settings, f"{key}=[{','.join(map(_quoted, words))}]", *arguments[len(plain) :]]


def check_options(arguments: Sequence[str]) -> None:
    """Refuses settings that are written as other programs' options, `--model sat_soft`.

    Raises:
        CaptioningError: says how they are written.
    """
    known = get_args_parser()._option_string_actions
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        name, _, value = argument.partition("=")
        if name.startswith("--") and not any(option.startswith(name) for option in known):
            setting = f"{name[2:]}={value or following or 'VALUE'}"
            raise CaptioningError(f"there is no option {quoted(name)}: settings have no dashes, {quoted(setting)}")


def _is_word(argument: str) -> bool:
    return "=" not in argument and (not argument.startswith("~") or argument.startswith("~/"))


def _quoted(word: str) -> str:
    """As Hydra's grammar has it; what looks like an interpolation is none."""
    return QuotedString(word.replace("${", "\\${"), Quote.single).with_quotes()
