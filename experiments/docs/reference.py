"""A page with every command and every setting, from the configuration files and the constructors
that they name.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import PydanticUserError, TypeAdapter
from yaml.nodes import MappingNode, Node

from captioning.__main__ import COMMANDS, ROOMS, about
from captioning.config.command import Command
from captioning.config.help import own_settings
from captioning.config.registry import CONF, PACKAGE, target_of
from captioning.config.schemas.run import RunSettings
from captioning.config.settings import described
from captioning.data.module import CaptionData

BOUNDS = {
    "minimum": "≥",
    "exclusiveMinimum": ">",
    "maximum": "≤",
    "exclusiveMaximum": "<",
}  # of JSON Schema
HYDRA_KEYS = {"defaults", "hydra", "_target_", "_partial_"}
ELSEWHERE = {"config": "run", "debug": "run"}
"""Commands of configuration files with other names."""
Row = tuple[str, str, str]
"""Key, default as it is written, comment."""


def reference() -> str:
    """The page, in Markdown: commands with what they do, then a table for each configuration file,
    by group.
    """
    lines = "\n".join(f"| `captioning {name}` | {about(name)} |" for name in COMMANDS)
    parts = [
        f"# Every command and setting\n\nMade from the code.\n\n| command | |\n|---|---|\n{lines}"
    ]
    for folder in (CONF, *sorted(path for path in CONF.rglob("*") if path.is_dir())):
        files = sorted(folder.glob("*.yaml"))
        if files:
            parts.append(f"## {'Commands' if folder == CONF else folder.relative_to(CONF)}")
        parts += map(_section, files)
    return "\n\n".join(parts) + "\n"


def _section(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    targets, table = _targets(file), _table(file)
    documentation = (inspect.getdoc(targets.get("")) or "").partition("\n\n")[0].replace("\n", " ")
    note = "\n".join(
        line.removeprefix("# ")
        for line in text.partition("\n\n")[0].splitlines()
        if re.match("# (?!@)", line)
    )
    rows, own = [], list(settings(yaml.compose(text), text.splitlines()))
    if file.parent == CONF:  # also those that no file lists
        listed = {path for path, _, _ in own}
        own += [(key, f"`{value}`", "") for key, value in own_settings(file) if key not in listed]
    for path, written, comment in own:
        place, _, name = path.rpartition(".")
        hint, description = table.get(path, (_annotation(targets.get(place), name), comment))
        allowed = _allowed(hint)
        rows.append(
            f"| {' | '.join(map(_cell, (f'`{path}`', written, allowed, description or comment)))} |"
        )
    lines = "\n".join(["| key | default | allowed | |\n|---|---|---|---|", *rows]) if rows else ""
    block = f"```text\n{note}\n```" if note else ""
    return "\n\n".join(
        filter(None, [f"### {file.stem}", block, documentation if "" in targets else "", lines])
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def settings(node: Node | None, lines: list[str], place: str = "") -> Iterator[Row]:
    """The settings of a composed YAML `node`, of which `lines` are the text; those within a setting
    by dotted keys.
    """
    if not isinstance(node, MappingNode):
        return
    for key, value in node.value:
        if (key.value in HYDRA_KEYS and not place) or key.value.startswith("_"):
            continue
        path = f"{place}{key.value}"
        if isinstance(value, MappingNode) and value.value:
            yield from settings(value, lines, f"{path}.")
            continue
        line, start, end = lines[key.end_mark.line], value.start_mark, value.end_mark
        inside = end.line == start.line == key.end_mark.line
        written = (
            line[start.column : end.column]
            if inside
            else line[key.end_mark.column + 1 :].partition(" # ")[0]
        )
        rest, _, comment = (line[end.column :] if inside else line).partition(" # ")
        comment = "" if "," in rest else comment  # which belongs to the last setting of its line
        yield path, f"`{written.strip()}`" if written.strip() else "", comment.strip()


def _table(file: Path) -> Mapping[str, tuple[Any, str]]:
    """The types that a command checks, by key; for a group's file those that `run` checks of the
    group.
    """
    if file.parent == CONF:
        command = ELSEWHERE.get(file.stem, file.stem)
        room = ROOMS.get(command, command)
        beside = PACKAGE.joinpath(*room.split(".")).is_dir()
        name = f"captioning.{room}.__main__" if beside else f"captioning.{room}"
        main: Command = importlib.import_module(name).main
        return {key: (hint, text) for key, hint, text in described(main.schema)}
    group = f"{file.parent.relative_to(CONF).as_posix()}."
    table = described(RunSettings)
    return {
        key.removeprefix(group): (hint, text) for key, hint, text in table if key.startswith(group)
    }


def _targets(file: Path) -> dict[str, Callable[..., Any]]:
    """The constructors of a file's settings and of those that it builds on, by the place where they
    stand.
    """
    content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    found: dict[str, Callable[..., Any]] = {"": CaptionData} if file.parent == CONF / "data" else {}
    for default in content.get("defaults", ()):
        for key, choice in (default if isinstance(default, dict) else {"": default}).items():
            part = key.removeprefix("override ")
            base = file.parent / part / f"{choice}.yaml"
            if base.is_file():
                found |= {
                    f"{part}.{place}".strip("."): target for place, target in _targets(base).items()
                }
    return found | dict(_own_targets(content, ""))


def _own_targets(content: Any, place: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    if isinstance(content, dict):
        if str(content.get("_target_")).startswith("captioning."):  # others may not be installed
            yield place, target_of(place, content["_target_"])
        for key, value in content.items():
            yield from _own_targets(value, f"{place}.{key}".strip("."))


def _annotation(target: Any, name: str) -> Any:
    try:
        return inspect.signature(target).parameters[name].annotation
    except (KeyError, TypeError):
        return None


def _allowed(hint: Any) -> str:
    """Values that a type allows, such as `integer ≥ 1`; empty where it names no plain type."""
    try:
        schema = TypeAdapter(hint).json_schema() if hint is not None else {}
    except (TypeError, ValueError, NameError, PydanticUserError):
        return ""
    kinds = map(_named, schema.get("anyOf", schema.get("oneOf", [schema])))
    return " or ".join(dict.fromkeys(filter(None, kinds)))


def _named(schema: dict[str, Any]) -> str:
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    bounds = [f"{sign} {schema[key]:,}" for key, sign in BOUNDS.items() if key in schema]
    kind = {"array": "list", "object": "settings"}.get(
        schema.get("type", ""), schema.get("type", "")
    )
    return " ".join([kind, *bounds]).strip()
