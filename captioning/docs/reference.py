"""A page with every command and every setting, from the configuration files and the constructors that they name."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import PydanticUserError, TypeAdapter
from yaml.nodes import MappingNode, Node

from captioning.config.registry import CONF, located

BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}  # of JSON Schema
NO_SETTINGS = {"defaults", "hydra", "_target_", "_partial_"}
Row = tuple[str, str, str, str]
"""Key, default as it is written, what is allowed, comment."""


def reference(commands: Mapping[str, str]) -> str:
    """The page, in Markdown: commands with what they do, then a table for each configuration file, by group."""
    lines = "\n".join(f"| `captioning {name}` | {about} |" for name, about in commands.items())
    parts = [f"# Every command and setting\n\nMade from the code.\n\n| command | |\n|---|---|\n{lines}"]
    for folder in (CONF, *sorted(path for path in CONF.rglob("*") if path.is_dir())):
        files = sorted(folder.glob("*.yaml"))
        if files:
            parts.append(f"## {'Commands' if folder == CONF else folder.relative_to(CONF)}")
        parts += map(_section, files)
    return "\n\n".join(parts) + "\n"


def _section(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    node = yaml.compose(text)
    target = _target(node)
    documentation = (inspect.getdoc(target) or "").partition("\n\n")[0].replace("\n", " ") if target else ""
    note = "\n".join(
        line.removeprefix("# ") for line in text.partition("\n\n")[0].splitlines() if re.match("# (?!@)", line)
    )
    rows = [f"| {' | '.join(map(_cell, row))} |" for row in settings(node, text.splitlines(), "")]
    table = "\n".join(["| key | default | allowed | |\n|---|---|---|---|", *rows]) if rows else ""
    block = f"```text\n{note}\n```" if note else ""
    return "\n\n".join(filter(None, [f"### {file.stem}", block, documentation, table]))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def settings(node: Node | None, lines: list[str], place: str, target: Any = None) -> Iterator[Row]:
    """The settings of a composed YAML `node`, of which `lines` are the text; those within a setting by dotted keys."""
    if not isinstance(node, MappingNode):
        return
    target = _target(node) or target
    for key, value in node.value:
        if (key.value in NO_SETTINGS and not place) or key.value.startswith("_"):
            continue
        path = f"{place}{key.value}"
        if isinstance(value, MappingNode) and value.value:
            yield from settings(value, lines, f"{path}.")
            continue
        line, start, end = lines[key.end_mark.line], value.start_mark, value.end_mark
        inside = end.line == start.line == key.end_mark.line
        written = line[start.column : end.column] if inside else line[key.end_mark.column + 1 :].partition(" # ")[0]
        rest, _, comment = (line[end.column :] if inside else line).partition(" # ")
        comment = "" if "," in rest else comment  # which belongs to the last setting of its line
        yield (
            f"`{path}`",
            f"`{written.strip()}`" if written.strip() else "",
            _allowed(target, key.value),
            comment.strip(),
        )


def _target(node: Node | None) -> Callable[..., Any] | None:
    named = {key.value: value.value for key, value in node.value} if isinstance(node, MappingNode) else {}
    target = named.get("_target_", "")
    return located(target) if target.startswith("captioning.") else None  # others may not be installed


def _allowed(target: Any, name: str) -> str:
    """Values that a constructor's annotation allows, such as `integer ≥ 1`; empty where it names no plain type."""
    try:
        schema = TypeAdapter(inspect.signature(target).parameters[name].annotation).json_schema()
    except (KeyError, TypeError, ValueError, NameError, PydanticUserError):
        return ""
    return " or ".join(map(_named, schema.get("anyOf", [schema])))


def _named(schema: dict[str, Any]) -> str:
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    bounds = [f"{sign} {schema[key]:g}" for key, sign in BOUNDS.items() if key in schema]
    return " ".join([str(schema.get("type", "")).replace("array", "list"), *bounds]).strip()
