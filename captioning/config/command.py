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
from typing import Any

import hydra
from hydra import initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode
from omegaconf import DictConfig

from captioning.config.arguments import (
    OPTIONS,
    SETTING,
    positionals_to_override,
    quote_texts,
    quoted_text,
    split_options,
    text_settings,
)
from captioning.config.explain import AMBIGUOUS, explain, is_expected
from captioning.config.help import help_text
from captioning.config.registry import CONF
from captioning.config.settings import S, Settings, check_settings, described
from captioning.errors import CaptioningError, Stopped, quoted
from captioning.machine import (
    SIGNALS,
    end_with_launcher,
    guard_terminal,
    is_rank_zero,
    keep_memory,
    limit_threads,
    on_signal,
    share_cores,
)

NOT_HERE = (  # warnings
    r".*does not have many workers.*",  # cached features are read faster without
    r".*is smaller than the logging interval.*",
    r"Found \d+ module\(s\) in eval mode",  # backbones keep their networks so
    # a resumed run's, in the middle of an epoch
    r"Checkpoint directory .* exists and is not empty",
    r"You're resuming from a checkpoint that ended before the epoch ended",
    # scores are the same on all processes
    r"It is recommended to use `self\.log\('((val|test)/|seconds').*sync_dist=True",
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning's own use of PyTorch
)


class Command:
    """A main function whose configuration Hydra composes from a file, and a schema judges.

    Bare arguments become the setting `words`.
    """

    def __init__(
        self, main: Callable[[Any], object], config: Path, schema: type[Settings], words: str | None
    ):
        @functools.wraps(main)
        def checked(config: DictConfig) -> object:
            settings = check_settings(schema, config)
            # Only here, because the processes of a sweep get their shares of the cores from joblib.
            limit_threads()
            return main(settings)

        failures: list[Exception] = []
        told: dict[str, int] = {}

        @functools.wraps(main)
        def job(config: DictConfig) -> object:
            try:
                return checked(config)
            except Exception as error:
                if HydraConfig.get().mode == RunMode.MULTIRUN:
                    _tell_failed_job(error, told)
                    raise
                failures.append(error)  # raised below, without Hydra's own line before it
                return None

        functools.update_wrapper(self, checked)
        self.checked = checked
        self.main = hydra.main(
            version_base="1.3", config_path=str(config.parent), config_name=config.stem
        )(job)
        self.config = config
        self.schema = schema
        self.words = words
        self._failures = failures

    def __call__(self) -> None:
        given = sys.argv[1:]
        sys.argv[1:] = self.overrides(given)
        try:
            self.main()
        except ConfigCompositionException as error:
            if AMBIGUOUS.match(str(error)):
                self._compose_sweep(self.composed(given))
            raise
        if self._failures:
            raise self._failures.pop()

    def overrides(self, arguments: Sequence[str]) -> list[str]:
        """The arguments as Hydra's grammar has them."""
        _check_options(arguments)
        settings, options = split_options(arguments)
        if self.words:
            settings = positionals_to_override(self.words, settings)
        for setting in settings:
            if setting[:1] != "~" and not SETTING.fullmatch(setting):
                raise CaptioningError(f"{quoted(setting)} is no setting: write KEY=VALUE")
        types = ((key, hint) for key, hint, _ in described(self.schema))
        sweep = bool({"-m", "--multirun"} & {*options})
        return [*quote_texts(settings, text_settings(types), sweep), *options]

    def composed(self, arguments: Sequence[str]) -> list[str]:
        """Arguments as `hydra.compose` takes them: the folder of `--config-dir` is a setting."""
        given = get_args_parser().parse_args(self.overrides(arguments))
        if given.config_dir is not None:
            folder = f"file://{Path(given.config_dir).absolute()}"
            given.overrides.append(f"hydra.searchpath=[{quoted_text(folder)}]")
        return given.overrides

    def _compose_sweep(self, overrides: list[str]) -> None:
        """Raise what Hydra does not tell of where an experiment chooses the mode of a sweep."""
        with initialize_config_dir(str(self.config.parent), version_base="1.3"):
            loader = GlobalHydra.instance().config_loader()
            name, mode = self.config.stem, RunMode.MULTIRUN
            loader.load_configuration(name, overrides, mode, validate_sweep_overrides=False)


def command(
    config: str | Path, schema: type[S], words: str | None = None
) -> Callable[[Callable[[S], object]], Command]:
    """Make a function of settings a command with the configuration file `config`, below `conf`."""
    return functools.partial(Command, config=CONF / config, schema=schema, words=words)


@contextmanager
def composition(file: Path, overrides: Sequence[str]) -> Iterator[DictConfig]:
    """The configuration as Hydra's own entry composes it, with its state, for the block."""
    before = HydraConfig.instance().cfg
    try:
        with initialize_config_dir(str(file.parent), version_base="1.3"):
            config = hydra.compose(file.stem, list(overrides), return_hydra_config=True)
            HydraConfig.instance().set_config(config)
            yield config
    finally:
        HydraConfig.instance().cfg = before


def _tell_failed_job(error: Exception, told: dict[str, int]) -> None:
    """Name a failed job of a sweep, which goes on with others, unless it has several processes."""
    number, reason = HydraConfig.get().job.num, explain(error)
    first = told.setdefault(reason, number)
    said = reason if first == number else f"as job {first}"
    print(f"job {number} failed: {said}", file=sys.stderr)
    distributed = sys.modules.get("torch.distributed")
    if distributed and distributed.is_initialized():  # the others may not have failed
        sys.exit(1)


def _check_options(arguments: Sequence[str]) -> None:
    """Refuse settings written as other programs' options, `--model sat_soft`, and Hydra's groups
    without a slash.
    """
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        name, _, value = argument.partition("=")
        if name.startswith("--") and not any(option.startswith(name) for option in OPTIONS):
            setting = f"{name[2:]}={value or following or 'VALUE'}"
            raise CaptioningError(
                f"there is no option {quoted(name)}: settings have no dashes, {quoted(setting)}"
            )
        group = name.lstrip("+~")
        if group in ("hydra.launcher", "hydra.sweeper") and not value.startswith("{"):
            chosen = f"{group.replace('.', '/')}=NAME"
            raise CaptioningError(
                f"{quoted(argument)} is no choice: a group of Hydra has a slash, {chosen}"
            )


def start(main: Command) -> None:
    """Run a command; errors of settings, files and networks become one sentence and exit code 1."""
    if {"--help", "-h"} & {*sys.argv[1:]} or sys.argv[1:] == ["help"]:
        with while_read():
            about = str(sys.modules[main.__module__].__doc__)
            print(help_text(about, main.config, main.schema, sys.argv[1:]))
        return
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra raises, and the message is ours
    prepare()
    end_with_launcher()
    sys.unraisablehook = _stop_here
    try:
        with on_signal(stop):
            main()
            for number in SIGNALS:  # all is written: nothing is lost from here
                signal.signal(number, signal.SIG_DFL)
    except Stopped as stopped:
        if is_rank_zero():  # whose command is the user's
            print(stopped, file=sys.stderr)
        sys.exit(stopped.exit_code)
    except BaseException as error:
        if not is_expected(error) or os.environ.get("CAPTIONING_TRACEBACK", "0") not in ("", "0"):
            raise
        print(f"error: {explain(error)}", file=sys.stderr)
        sys.exit(1)


def stop(number: int) -> None:
    """Raise `Stopped`, for a signal."""
    raise Stopped(f"\nstopped by {signal.Signals(number).name}. What is finished is kept", number)


def _stop_here(ignored: Any) -> None:
    """End the process where Python ignores the exception of a signal, as in `__del__`."""
    if isinstance(ignored.exc_value, Stopped):
        print(ignored.exc_value, file=sys.stderr, flush=True)
        os._exit(ignored.exc_value.exit_code)
    sys.__unraisablehook__(ignored)


@contextmanager
def while_read() -> Iterator[None]:
    """End the program quietly when its output is closed (`| head`), before Hydra reports it."""
    try:
        yield
    except BrokenPipeError:
        # Otherwise Python's own flush at exit complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # as of a program that the signal SIGPIPE has ended
    except OSError as error:  # such as that of a full disk, of a file that it is written to
        error.filename = error.filename or "standard output"
        raise


def prepare() -> None:
    """Prepare the process of a command or of a job."""
    guard_terminal()
    keep_memory()
    share_cores()
    logging.raiseExceptions = False  # nor of an output that nobody reads any more
    if not is_rank_zero():  # which logs the same
        logging.getLogger("captioning").setLevel(logging.ERROR)
    ignore_known_warnings()


def ignore_known_warnings() -> None:
    """Filter warnings that tell a user of captioners nothing."""
    for message in NOT_HERE:
        warnings.filterwarnings("ignore", message=message)
    # Pillow warns of damage in photographs that it has read nevertheless, and logs what it raises.
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module=r"PIL\b")
