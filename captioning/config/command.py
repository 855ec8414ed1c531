"""The entry of every command: arguments, configuration, errors as sentences."""

import functools
import itertools
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, Protocol, cast

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig

from captioning.config.explain import explain, is_expected
from captioning.config.help import help_text
from captioning.errors import CaptioningError, Stopped, quoted
from captioning.machine import end_with_launcher, keep_memory, on_signal

NOT_HERE = (
    # Cached features are read faster without workers.
    r".*does not have many workers.*",
    # An epoch may well have fewer steps than `log_every_n_steps`.
    r".*is smaller than the logging interval.*",
    # Backbones keep their networks in evaluation mode on purpose (see `captioning.backbones.base`).
    r"Found \d+ module\(s\) in eval mode",
    # A resumed run goes on in its own folder, and its data module in the middle of an epoch.
    r"Checkpoint directory .* exists and is not empty",
    r"You're resuming from a checkpoint that ended before the epoch ended",
    # Scores are computed once and are the same on all processes already.
    r"It is recommended to use `self\.log\('(val|test)/.*sync_dist=True",
    # Lightning's own use of PyTorch.
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
)
"""Warnings that do not hold here, or not for the user."""
TRACEBACK = "CAPTIONING_TRACEBACK"
"""Environment variable: set to 1, errors keep their traceback."""


class Command(Protocol):
    """A main function, called without arguments."""

    config: Path

    def __call__(self) -> object: ...


def command(config: Path, words: str | None = None) -> Callable[[Callable[[DictConfig], object]], Command]:
    """Make a function a Hydra main with the configuration file `config`; bare arguments become the setting `words`."""

    def decorate(main: Callable[[DictConfig], object]) -> Command:
        composed = hydra.main(version_base="1.3", config_path=str(config.parent), config_name=config.stem)(main)

        @functools.wraps(main)
        def found() -> object:
            _check_options(sys.argv[1:])
            if words is not None:
                sys.argv[1:] = as_setting(words, sys.argv[1:])
            return composed()

        found.config = config  # type: ignore[attr-defined]
        return cast(Command, found)

    return decorate


def as_setting(key: str, arguments: Sequence[str]) -> list[str]:
    """The arguments with the words among them (`a.jpg b.jpg`) as one setting, `KEY=[WORD,WORD]`.

    A word has no `=`, stands before the first option (`--cfg job`), and leaves out no part (`~PART`).
    """
    plain = list(itertools.takewhile(lambda argument: not argument.startswith("-"), arguments))
    words = [word for word in plain if "=" not in word and (not word.startswith("~") or word.startswith("~/"))]
    if not words:
        return list(arguments)
    settings = [argument for argument in plain if argument not in words]
    if any(setting.startswith(f"{key}=") for setting in settings):
        raise CaptioningError(f"{words[0]:.200} and {key}= are both given: name all of them in {key}=[A,B], or none")
    # quoted as Hydra's grammar has it; what looks like an interpolation is none
    each = [QuotedString(word.replace("${", "\\${"), Quote.single).with_quotes() for word in words]
    return [*settings, f"{key}=[{','.join(each)}]", *arguments[len(plain) :]]


def _check_options(arguments: Sequence[str]) -> None:
    """Refuse settings that are written as other programs' options, `--model sat_soft`."""
    known = get_args_parser()._option_string_actions
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        name, _, value = argument.partition("=")
        if name.startswith("--") and not any(option.startswith(name) for option in known):
            setting = f"{name[2:]}={value or following or 'VALUE'}"
            raise CaptioningError(f"there is no option {quoted(name)}: settings have no dashes, {quoted(setting)}")


def start(main: Command) -> None:
    """Run a command; errors of settings, files and networks become one sentence and exit code 1."""
    if {"--help", "-h"} & {*sys.argv[1:]}:
        with while_read():
            print(help_text(str(sys.modules[main.__module__].__doc__), main.config, sys.argv[1:]))
        return
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra raises, and the message is ours
    prepare()
    end_with_launcher()
    try:
        with on_signal(_stop):
            main()
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        sys.exit(stopped.exit_code)
    except Exception as error:
        if not is_expected(error) or os.environ.get(TRACEBACK, "0") not in ("", "0"):
            raise
        print(f"error: {explain(error)}", file=sys.stderr)
        sys.exit(1)


def _stop(number: int) -> NoReturn:
    name = signal.Signals(number).name
    raise Stopped(f"\nstopped by {name}. What is finished is kept, and the same command goes on from there", number)


@contextmanager
def while_read() -> Iterator[None]:
    """End the program quietly when its output is no longer read (`| head`); inside a Hydra main, which would report."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python's own flush at exit complains
        sys.exit(141)  # as of a program that the signal SIGPIPE has ended


def prepare() -> None:
    """Prepare the process of a command or of a job."""
    keep_memory()
    logging.raiseExceptions = False  # nor of an output that nobody reads any more
    for message in NOT_HERE:
        warnings.filterwarnings("ignore", message=message)
    warnings.filterwarnings("ignore", module=r"PIL\b")  # of damage in photographs that it has read nevertheless
