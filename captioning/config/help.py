"""What `--help` prints: what a command does, its choices, and its settings with the comments beside them."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

HIDDEN = ("defaults:", "hydra:")
"""Parts of a configuration file that are no settings of the command."""


def help_text(about: str, config: Path, arguments: Sequence[str]) -> str:
    """The help of a command, or of the choices `group=name` among its arguments alone.

    Args:
        about: the documentation of its module, whose first paragraph says what it does.
        config: its configuration file; the groups that it chooses from lie beside it.
        arguments: of the command line.
    """
    groups = dict(_groups(config))
    if explained := list(_explained(config, groups, arguments)):
        return "\n\n".join(explained)
    parts = [about.partition("\n\n")[0]]
    header, settings = _split(config)
    if header:
        parts.append(_indented(header))
    if groups:
        parts.append(
            f"Choices, GROUP=NAME; --help GROUP=NAME explains one:\n\n{_indented(_choices(config.parent, groups))}"
        )
    parts.append(f"Settings, KEY=VALUE or GROUP.KEY=VALUE:\n\n{_indented(settings)}")
    parts.append("--cfg job prints all settings of a command line, composed. Further options: --hydra-help.")
    return "\n\n".join(parts)


def _explained(config: Path, groups: Mapping[str, str | None], arguments: Sequence[str]) -> Iterator[str]:
    """The settings and parts of each choice `group=name`."""
    for argument in arguments:
        group, _, name = argument.partition("=")
        chosen = config.parent / group / f"{name}.yaml"
        if group.split("/")[0] in groups and chosen.is_file():
            lines = [f"# {line}" for line in _split(chosen)[0]] + _inherited(chosen)
            yield f"{argument}:\n\n{_indented(lines)}"
            if inner := _parts(chosen):
                title = f"Its parts, {group}/PART=NAME; ~{group}/PART leaves one out"
                yield f"{title}:\n\n{_indented(_choices(chosen.parent, inner))}"


def _groups(config: Path) -> Iterator[tuple[str, str | None]]:
    """The groups that a configuration file chooses from, and what it chooses."""
    for entry in _defaults(config):
        if isinstance(entry, dict):
            for group, choice in entry.items():
                if not group.startswith(("override ", "optional ")):  # nobody chooses these
                    yield group, choice


def _parts(config: Path) -> dict[str, str | None]:
    """The groups inside its own that a file chooses from, after those of the files that it begins with."""
    found: dict[str, str | None] = {}
    for entry in _defaults(config):
        if isinstance(entry, dict):
            chosen = {group.removeprefix("override "): choice for group, choice in entry.items()}
            found |= {group: choice for group, choice in chosen.items() if not group.startswith("/")}
        elif entry != "_self_":
            found |= _parts(_base(config, entry))
    return found


def _inherited(config: Path) -> list[str]:
    """The settings of a file after those of the files that it begins with; one given anew stands in its place."""
    entries = [entry for entry in _defaults(config) if isinstance(entry, str) and entry != "_self_"]
    lines = [line for entry in entries for line in _inherited(_base(config, entry))]
    for line in _split(config)[1]:
        key, colon, _ = line.partition(": ")
        place = next((n for n, old in enumerate(lines) if old.startswith(key + ": ")), None)
        if place is None or not colon or key.startswith(" "):
            lines.append(line)
        else:
            comment = lines[place].partition("#")
            kept = "" if "#" in line or not comment[1] else "#" + comment[2]
            lines[place] = f"{line:<{len(comment[0])}}{kept}"
    return lines


def _base(config: Path, entry: str) -> Path:
    # "csv@logger" is the file csv, and where its settings go
    return config.with_name(f"{entry.partition('@')[0]}.yaml")


def _defaults(config: Path) -> list[Any]:
    return list((yaml.safe_load(config.read_text(encoding="utf-8")) or {}).get("defaults", []))


def _choices(folder: Path, groups: dict[str, str | None]) -> list[str]:
    width = max(map(len, groups)) + 2
    return [f"{group:<{width}}{_options(folder / group, default)}" for group, default in groups.items()]


def _options(folder: Path, default: str | None) -> str:
    names = sorted(path.stem for path in folder.glob("*.yaml") if not path.stem.startswith("_"))
    return ", ".join(f"[{name}]" if name == default else name for name in names)


def _split(config: Path) -> tuple[list[str], list[str]]:
    """The comment that a file opens with, without its signs, and the lines of its settings."""
    lines = config.read_text(encoding="utf-8").splitlines()
    start = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    header = [line.removeprefix("#").removeprefix(" ") for line in lines[:start] if "@package" not in line]
    settings, hidden = [], False
    for line in lines[start:]:
        if line and not line.startswith((" ", "#")):
            hidden = line.startswith(HIDDEN)
        if not hidden:
            settings.append(line)
    return header, "\n".join(settings).strip().splitlines()


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"  {line}".rstrip() for line in lines)


def help_asked() -> bool:
    """Whether the command line asks for help."""
    return any(argument in ("--help", "-h") for argument in sys.argv[1:])
