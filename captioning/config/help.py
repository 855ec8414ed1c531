"""Text of `--help`: a command's choices, and its settings with their descriptions."""

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from captioning.config.settings import NULLS, described


def help_text(about: str, config: Path, schema: type[BaseModel], arguments: Sequence[str]) -> str:
    """Return the help of a command, or of the choices in `arguments` alone."""
    parser = ArgumentParser(add_help=False)
    parser.add_argument("--config-dir", "-cd", type=Path)
    own = parser.parse_known_args(arguments)[0].config_dir
    folders = [config.parent]
    if own:  # in Hydra's order
        folders.append(own)
    groups, explained = _groups(config.stem, folders), []
    descriptions = {key: text for key, _, text in described(schema)}
    for argument in arguments:
        group, _, name = argument.partition("=")
        chosen = f"{group}/{name}"
        if group.split("/")[0] in groups and _find(chosen, folders):
            files = [chosen]
            for base in files:  # which grow by those that it begins with
                if file := _find(base, folders):
                    content = _described_file(file, group, descriptions)
                    explained.append(f"{group}={file.stem}:\n\n{_indented(content)}")
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
    content = config.read_text(encoding="utf-8")
    examples = "\n".join(line[2:] for line in content.splitlines() if line.startswith("# "))
    text.append(f"Examples:\n\n{_indented(examples)}")
    lines = [
        _commented(f"{key}={value}", descriptions.get(key)) for key, value in own_settings(config)
    ]
    text.append("Settings, KEY=VALUE:\n\n" + _indented("\n".join(lines)))
    text.append(
        "--cfg job prints all settings of a command line, composed. Further options: --hydra-help."
    )
    return "\n\n".join(text)


def own_settings(config: Path) -> Iterator[tuple[str, str]]:
    """Yield a command's own settings by dotted key, with their defaults as written.

    They are those of its file, and those of searches if its defaults name them.
    """
    text = config.read_text(encoding="utf-8")
    for key, node in _plain_nodes("", yaml.compose(text)):
        if not key.startswith(("defaults", "hydra")):
            yield key, text[node.start_mark.index : node.end_mark.index].strip()
    for base in yaml.safe_load(text).get("defaults", ()):
        if isinstance(base, str) and base in NULLS:
            for setting, _, _ in described(NULLS[base], "decoding."):
                yield setting, "null"


def _plain_nodes(key: str, node: Any) -> Iterator[tuple[str, yaml.Node]]:
    """The plain settings of a composed file, and its lists, by dotted key."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            yield from _plain_nodes(f"{key}.{name.value}" if key else name.value, value)
    elif node:
        yield key, node


def _described_file(file: Path, group: str, descriptions: Mapping[str, str]) -> str:
    """A file with the descriptions of settings that have no comment."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    for key, node in _plain_nodes(group, yaml.compose(text)):
        line = node.start_mark.line
        if "#" not in lines[line]:
            lines[line] = _commented(lines[line], descriptions.get(key))
    return "\n".join(lines)


def _commented(line: str, description: str | None) -> str:
    return f"{line:<45}  # {description}" if description else line


def _find(name: str, folders: Sequence[Path]) -> Path | None:
    """The file of a configuration such as `model/sat_soft`, of the user's in `--config-dir` too."""
    return next((file for folder in folders if (file := folder / f"{name}.yaml").is_file()), None)


def _read(name: str, folders: Sequence[Path]) -> tuple[list[str], dict[str, str | None]]:
    """Read the names of a configuration's base files, and its groups with their choices."""
    file = _find(name, folders)
    content = yaml.safe_load(file.read_text(encoding="utf-8")) if file else None
    bases, groups = [], {}
    for entry in (content or {}).get("defaults", []):
        if isinstance(entry, dict):
            for group, choice in entry.items():
                group = group.removeprefix("override ")
                if not group.startswith(("/", "hydra/", "optional ")):
                    groups[group] = choice
        elif entry != "_self_":
            base = entry.partition("@")[0]  # "csv@logger" is the file csv, and where it goes
            bases.append(base[1:] if base[0] == "/" else str(Path(name).with_name(base)))
    return bases, groups


def _groups(name: str, folders: Sequence[Path]) -> dict[str, str | None]:
    bases, groups = _read(name, folders)
    for base in reversed(bases):  # which stand before their own
        groups = _groups(base, folders) | groups
    return groups


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
