"""The program `captioning`; every command is a subcommand: `captioning run data=flickr8k`."""

import ast
import atexit
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from captioning import __version__
from captioning.errors import did_you_mean, ours_for
from captioning.machine import guard_terminal, on_signal

COMMANDS = (
    *("run", "runs", "evaluate", "compare", "predict", "report", "describe"),
    *("serve", "export", "convert", "push", "download", "doctor"),
)
ROOMS = {"compare": "report.compare"}  # of commands that share one
USAGE = """captioning COMMAND [KEY=VALUE ...]

{}

captioning COMMAND --help explains a command, captioning --version prints the version.
"""


def program() -> None:
    """Run `main` in a process that ends with its last line."""
    ended: object = 1

    def leave() -> None:
        with suppress(OSError):  # nobody reads it any more
            sys.stdout.flush()
        os._exit(ended if isinstance(ended, int) else 1)

    # Python itself takes seconds to remove PyTorch; what is registered first is called last
    atexit.register(leave)
    try:
        main()
        ended = 0
    except SystemExit as stopped:
        ended = stopped.code or 0
        raise


def main() -> None:
    """Run the command that the first argument names."""
    guard_terminal()
    first, *arguments = sys.argv[1:] or ["--help"]
    if first == "help":
        first, *arguments = [*arguments, "--help"]
    if first in ("--help", "-h"):
        print(USAGE.format("\n".join(f"  {name:<12}{about(name)}" for name in COMMANDS)), end="")
    elif first == "--version":
        print(f"captioning {__version__}")
    elif first in ("--shell-completion", "-sc"):
        _complete(arguments)
    elif first not in COMMANDS:
        hint = did_you_mean(first, COMMANDS, ours_for(f"captioning {first}"))
        print(
            f"error: there is no command {first:.200}.{hint} Commands: {', '.join(COMMANDS)}",
            file=sys.stderr,
        )
        sys.exit(1)
    else:
        _begin(first, arguments)


def _begin(name: str, arguments: Sequence[str]) -> None:
    # A command runs as `python -m captioning.NAME`, which is also how it starts further processes.
    here = str(Path.cwd())
    if not sys.flags.safe_path and sys.path[0] != here:
        sys.path.insert(0, here)  # for modules of the user
    sys.argv[1:] = arguments
    # The command is imported, which takes seconds; then it has its own way to stop.
    with on_signal(_stop):
        runpy.run_module(f"captioning.{ROOMS.get(name, name)}", run_name="__main__", alter_sys=True)


def _stop(number: int) -> None:
    print(
        f"\nstopped by {signal.Signals(number).name} before it began", file=sys.stderr, flush=True
    )
    os._exit(128 + number)  # an exception would end in whatever is being imported


def _complete(arguments: Sequence[str]) -> None:
    """Shell completion: commands here, what follows by Hydra."""
    name = COMMANDS[0]
    if arguments and arguments[0].startswith("query"):
        line = os.environ.get("COMP_LINE", "")
        finished = line.rpartition(" ")[0].split()
        if len(finished) < 2:
            print("\n".join(COMMANDS))
            return
        name = finished[1]
        if name not in COMMANDS or name == "doctor":
            return
        os.environ["COMP_LINE"] = line.replace(f" {name}", "", 1)
    sys.argv[:] = ["captioning", "-sc", *arguments]
    room = f"captioning.{ROOMS.get(name, name)}"
    import_module(room if _path(name).stem == name else f"{room}.__main__").main()


def about(name: str) -> str:
    """The beginning of a command's documentation, read without an import."""
    documentation = ast.get_docstring(ast.parse(_path(name).read_text(encoding="utf-8")))
    return str(documentation).partition(": `")[0]


def _path(name: str) -> Path:
    room = Path(__file__).parent.joinpath(*ROOMS.get(name, name).split("."))
    module = room.with_suffix(".py")
    return module if module.is_file() else room / "__main__.py"


if __name__ == "__main__":
    program()
