"""Text of `--help`: a command's choices, and its configuration files as they are written."""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

# blocks of a configuration file that are no settings of the command
HIDDEN = re.compile(r"^(defaults|hydra):.*\n(?:(?: .*)?\n)*", re.MULTILINE)


def help_text(about: str, config: Path, arguments: Sequence[str]) -> str:
    """The help of a command, or of the choices `group=name` among its arguments alone.

    Args:
        about: the documentation of its module, whose first paragraph is printed.
        config: its configuration file; the groups that it chooses from lie beside it.
        arguments: of the command line.
    """
    groups = _groups(config)
    if explained := [text for argument in arguments for text in _explained(config, groups, argument)]:
        return "\n\n".join(explained)
    parts = [about.partition("\n\n")[0]]
    if groups:
        parts.append(f"Choices, GROUP=NAME; --help GROUP=NAME explains one:\n\n{_choices(config.parent, groups)}")
    settings = HIDDEN.sub("", config.read_text(encoding="utf-8"))
    parts.append(f"Settings, KEY=VALUE or GROUP.KEY=VALUE:\n\n{_indented(settings)}")
    parts.append("--cfg job prints all settings of a command line, composed. Further options: --hydra-help.")
    return "\n\n".join(parts)


def help_asked() -> bool:
    """Tell whether the command line asks for help."""
    return any(argument in ("--help", "-h") for argument in sys.argv[1:])


def _explained(config: Path, groups: dict[str, str | None], argument: str) -> Iterator[str]:
    """The files of a choice `group=name`: its own, those that it begins with, and the choices of its parts."""
    group, _, name = argument.partition("=")
    chosen = config.parent / group / f"{name}.yaml"
    if group.split("/")[0] not in groups or not chosen.is_file():
        return
    files = [chosen]
    for file in files:  # which grow
        yield f"{group}={file.stem}:\n\n{_indented(file.read_text(encoding='utf-8'))}"
        files += _bases(file)
    if inner := _groups(chosen):
        yield f"Parts, {group}/PART=NAME; ~{group}/PART leaves one out:\n\n{_choices(chosen.parent, inner)}"


def _groups(config: Path) -> dict[str, str | None]:
    """The groups that a file and those that it begins with choose from, and what they choose."""
    found = {group: choice for base in _bases(config) for group, choice in _groups(base).items()}
    for entry in _defaults(config):
        for group, choice in entry.items() if isinstance(entry, dict) else ():
            name = group.removeprefix("override ")
            if not name.startswith(("/", "hydra/", "optional ")):
                found[name] = choice
    return found


def _bases(config: Path) -> list[Path]:
    entries = [entry for entry in _defaults(config) if isinstance(entry, str) and entry != "_self_"]
    # "csv@logger" is the file csv, and where its settings go
    return [config.with_name(f"{entry.partition('@')[0]}.yaml") for entry in entries]


def _defaults(config: Path) -> list[Any]:
    return list((yaml.safe_load(config.read_text(encoding="utf-8")) or {}).get("defaults", []))


def _choices(folder: Path, groups: dict[str, str | None]) -> str:
    lines = []
    for group, default in groups.items():
        names = sorted(path.stem for path in (folder / group).glob("[!_]*.yaml"))
        options = ", ".join(f"[{name}]" if name == default else name for name in names)
        lines.append(f"{group:<{max(map(len, groups)) + 2}}{options}")
    return _indented("\n".join(lines))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.strip().splitlines())
