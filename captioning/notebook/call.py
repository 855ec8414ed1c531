"""A command called in the middle of a process, which is left as it was found."""

import logging
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from captioning.config.command import Command, composition, ignore_known_warnings, stop
from captioning.config.explain import explain, is_expected
from captioning.errors import CaptioningError, Stopped
from captioning.machine import SIGNALS, on_signal

_AT_WORK = threading.Lock()


def call(command: Command, settings: Sequence[str]) -> DictConfig:
    """Run a command with settings as on its command line; return its configuration.

    Hydra's state, handlers of signals and logs, and filters of warnings are as before in the end.

    Raises:
        CaptioningError: a setting or a file is wrong, or another call is at work.
        KeyboardInterrupt: one of `SIGNALS` came; what is finished is kept.
    """
    if not _AT_WORK.acquire(blocking=False):
        raise CaptioningError(
            "another call is at work in this process: wait for its end, or run this one in a "
            "process of its own, by captioning on the command line"
        )
    try:
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            ignore_known_warnings()
            stack.enter_context(_lines_of_logs())
            if threading.current_thread() is threading.main_thread():  # where signals arrive
                stack.enter_context(_until_a_signal())
            config = stack.enter_context(_composed(command, settings))
            command.checked(config)
            return config
    except Stopped as stopped:
        text = f"{str(stopped).strip()}; the same call again goes on from there"
        raise KeyboardInterrupt(text) from None
    except Exception as error:
        if isinstance(error, CaptioningError) or not is_expected(error):
            raise
        raise CaptioningError(explain(error)) from error
    finally:
        _AT_WORK.release()


@contextmanager
def _composed(command: Command, settings: Sequence[str]) -> Iterator[DictConfig]:
    """The configuration of a command for one process."""
    with composition(command.config, command.composed(settings)) as config:
        _refuse_several_processes(config)
        OmegaConf.set_readonly(config.hydra, False)
        config.hydra.mode = RunMode.MULTIRUN  # a job of a sweep resumes without being asked
        HydraConfig.instance().set_config(config)
        yield OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def _refuse_several_processes(config: DictConfig) -> None:
    """Refuse what only a program can start: a sweep, and a training by several processes."""
    if config.hydra.mode == RunMode.MULTIRUN:
        raise CaptioningError(
            "these settings are a sweep: captioning run starts it; hydra.mode=RUN takes one run"
        )
    devices = OmegaConf.select(config, "trainer.devices", default=1)
    if devices not in (1, "1") or OmegaConf.select(config, "trainer.num_nodes", default=1) != 1:
        raise CaptioningError(
            f"trainer.devices={devices} needs several processes, which captioning run starts: set "
            "trainer.devices=1"
        )


@contextmanager
def _lines_of_logs() -> Iterator[None]:
    """Print what the package logs, as its commands do."""
    logger, handler = logging.getLogger("captioning"), logging.StreamHandler(sys.stdout)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # to handlers of the user, which would print the lines again
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


@contextmanager
def _until_a_signal() -> Iterator[None]:
    """Raise `Stopped` at a signal; another one ends the process at once."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        with on_signal(stop):
            yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
