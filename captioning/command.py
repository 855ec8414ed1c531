"""How every command starts: its configuration found, its errors printed as sentences."""

import os
import sys
import warnings
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from hydra.errors import HydraException, InstantiationException
from omegaconf import DictConfig
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from captioning.errors import CaptioningError

_PACKAGE = Path(__file__).parent
CONF = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf"
"""The configuration: inside an installed wheel, else beside the package in a checkout."""


def start(main: Callable[[], object]) -> None:
    """Runs a Hydra main; what a user can mend is printed without a traceback, and the exit code is 1."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra raises, and the message is ours
    _quiet()
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except (CaptioningError, HydraException, OmegaConfBaseException) as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        sys.exit(1)


def explain(error: Exception) -> str:
    """What came, what is allowed and what to do."""
    cause = error.__cause__ or error
    if isinstance(cause, ConfigKeyError) and isinstance(cause.parent_node, DictConfig):
        path = str(cause.full_key or cause.key)
        allowed = sorted(map(str, cause.parent_node))
        close = get_close_matches(path.rpartition(".")[2], allowed, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        parent = path.rpartition(".")[0]
        where = f"in {parent}" if parent else "at the top level"
        return f"there is no setting {path}.{hint} Settings {where}: {', '.join(allowed)}"
    if isinstance(error, InstantiationException):
        return str(cause) if isinstance(cause, CaptioningError) else f"{_last_line(error)}: {cause}"
    return str(error)


def _last_line(error: Exception) -> str:
    return str(error).splitlines()[-1].removeprefix("full_key: ")


def _quiet() -> None:
    # Advice of Lightning's that does not hold here: cached features are read faster without workers, and an epoch may
    # well have fewer steps than `log_every_n_steps`.
    warnings.filterwarnings("ignore", message=r".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=r".*is smaller than the logging interval.*")
