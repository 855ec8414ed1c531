"""Text of `--help`: a command's choices, and its configuration files as they are written."""

import re
from collections.abc import Sequence
from pathlib import Path

import yaml

# blocks of a configuration file that are no settings of the command
HIDDEN = re.compile(r"^(defaults|hydra):.*\n(?:(?: .*)?\n)*", re.MULTILINE)


def help_text(about: str, config: Path, arguments: Sequence[str]) -> str:
    """Return the help of a command, or of the choices in `arguments` alone."""
    groups, explained = _groups(config), []
    for argument in arguments:
        group, _, name = argument.partition("=")
        chosen = config.parent / group / f"{name}.yaml"
        if group.split("/")[0] in groups and chosen.is_file():
            files = [chosen]
            for file in files:  # which grow by those that it begins with
                explained.append(f"{group}={file.stem}:\n\n{_indented(file.read_text(encoding='utf-8'))}")
                files += _read(file)[0]
            if inner := _groups(chosen):
                parts = f"Parts, {group}/PART=NAME; ~{group}/PART leaves one out"
                explained.append(f"{parts}:\n\n{_choices(chosen.parent, inner)}")
    if explained:
        return "\n\n".join(explained)
    text = [about.partition("\n\n")[0]]
    if groups:
        text.append(f"Choices, GROUP=NAME; --help GROUP=NAME explains one:\n\n{_choices(config.parent, groups)}")
    settings = HIDDEN.sub("", config.read_text(encoding="utf-8"))
    text.append(f"Settings, KEY=VALUE or GROUP.KEY=VALUE:\n\n{_indented(settings)}")
    text.append("--cfg job prints all settings of a command line, composed. Further options: --hydra-help.")
    return "\n\n".join(text)


def _read(config: Path) -> tuple[list[Path], dict[str, str | None]]:
    """Read the base files of a configuration, and its groups with their choices."""
    entries = (yaml.safe_load(config.read_text(encoding="utf-8")) or {}).get("defaults", [])
    # "csv@logger" is the file csv, and where its settings go
    names = [entry.partition("@")[0] for entry in entries if isinstance(entry, str) and entry != "_self_"]
    pairs = [pair for entry in entries if isinstance(entry, dict) for pair in entry.items()]
    chosen = {group.removeprefix("override "): choice for group, choice in pairs}
    groups = {group: choice for group, choice in chosen.items() if not group.startswith(("/", "hydra/", "optional "))}
    return [config.with_name(f"{name}.yaml") for name in names], groups


def _groups(config: Path) -> dict[str, str | None]:
    files, own = _read(config)
    return {group: choice for file in files for group, choice in _groups(file).items()} | own


def _choices(folder: Path, groups: dict[str, str | None]) -> str:
    lines = []
    for group, default in groups.items():
        names = sorted(path.stem for path in (folder / group).glob("[!_]*.yaml"))
        options = ", ".join(f"[{name}]" if name == default else name for name in names)
        lines.append(f"{group:<{max(map(len, groups)) + 2}}{options}")
    return _indented("\n".join(lines))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.strip().splitlines())
