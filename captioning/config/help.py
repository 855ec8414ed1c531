"""Text of `--help`: a command's choices, and its configuration files as they are written."""

import re
from collections.abc import Sequence
from pathlib import Path

import yaml
from hydra._internal.utils import get_args_parser

# blocks of a configuration file that are no settings of the command
HIDDEN = re.compile(r"^(defaults|hydra):.*\n(?:(?: .*)?\n)*", re.MULTILINE)


def help_text(about: str, config: Path, arguments: Sequence[str]) -> str:
    """Return the help of a command, or of the choices in `arguments` alone."""
    own = get_args_parser().parse_known_args(arguments)[0].config_dir
    folders = [config.parent, *([] if own is None else [Path(own)])]  # in Hydra's order
    groups, explained = _groups(config.stem, folders), []
    for argument in arguments:
        group, _, name = argument.partition("=")
        chosen = f"{group}/{name}"
        if group.split("/")[0] in groups and _find(chosen, folders):
            files = [chosen]
            for base in files:  # which grow by those that it begins with
                if file := _find(base, folders):
                    explained.append(
                        f"{group}={file.stem}:\n\n{_indented(file.read_text(encoding='utf-8'))}"
                    )
                    files += _read(base, folders)[0]
            if inner := _groups(chosen, folders):
                parts = f"Parts, {group}/PART=NAME; ~{group}/PART leaves one out"
                explained.append(
                    f"{parts}:\n\n{_choices([folder / group for folder in folders], inner)}"
                )
    if explained:
        return "\n\n".join(explained)
    text = [about.partition("\n\n")[0]]
    if groups:
        text.append(
            f"Choices, GROUP=NAME; --help GROUP=NAME explains one:\n\n{_choices(folders, groups)}"
        )
    settings = HIDDEN.sub("", config.read_text(encoding="utf-8"))
    text.append(f"Settings, KEY=VALUE or GROUP.KEY=VALUE:\n\n{_indented(settings)}")
    text.append(
        "--cfg job prints all settings of a command line, composed. Further options: --hydra-help."
    )
    return "\n\n".join(text)


def _find(name: str, folders: Sequence[Path]) -> Path | None:
    """The file of a configuration such as `model/sat_soft`, of the user's in `--config-dir` too."""
    return next((file for folder in folders if (file := folder / f"{name}.yaml").is_file()), None)


def _read(name: str, folders: Sequence[Path]) -> tuple[list[str], dict[str, str | None]]:
    """Read the names of a configuration's base files, and its groups with their choices."""
    file = _find(name, folders)
    entries = (
        (yaml.safe_load(file.read_text(encoding="utf-8")) or {}).get("defaults", []) if file else []
    )
    # "csv@logger" is the file csv, and where its settings go
    names = [
        entry.partition("@")[0] for entry in entries if isinstance(entry, str) and entry != "_self_"
    ]
    pairs = [pair for entry in entries if isinstance(entry, dict) for pair in entry.items()]
    chosen = {group.removeprefix("override "): choice for group, choice in pairs}
    groups = {
        group: choice
        for group, choice in chosen.items()
        if not group.startswith(("/", "hydra/", "optional "))
    }
    return [
        base[1:] if base[0] == "/" else str(Path(name).with_name(base)) for base in names
    ], groups


def _groups(name: str, folders: Sequence[Path]) -> dict[str, str | None]:
    bases, own = _read(name, folders)
    return {
        group: choice for base in bases for group, choice in _groups(base, folders).items()
    } | own


def _choices(folders: Sequence[Path], groups: dict[str, str | None]) -> str:
    lines = []
    for group, default in groups.items():
        names = sorted(
            {path.stem for folder in folders for path in (folder / group).glob("[!_]*.yaml")}
        )
        options = ", ".join(f"[{name}]" if name == default else name for name in names)
        lines.append(f"{group:<{max(map(len, groups)) + 2}}{options}")
    return _indented("\n".join(lines))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.strip().splitlines())
