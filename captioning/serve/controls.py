"""The searches that a visitor can choose, with controls for their settings.

They are the files of `conf/decoding`. The comment of a setting there is its label on the page, with
an explanation after a colon; its bounds are those of the search, narrower where one visitor could
take all of the machine.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import yaml
from annotated_types import Interval
from pydantic import TypeAdapter

from captioning.config.registry import CONF, locate
from captioning.config.types import check_value
from captioning.errors import CaptioningError, no_setting, quoted
from captioning.runs.searches import UNTRUSTED_LIMITS

BOUNDS: Mapping[str, Any] = {
    **UNTRUSTED_LIMITS,
    "temperature": Annotated[float, Interval(ge=0.01, le=100)],
}


@dataclass(frozen=True, slots=True)
class Control:
    """A setting, called `key` on the command line; `schema` has JSON Schema's `type`, `minimum`,
    `maximum`, `enum`.
    """

    key: str
    name: str
    value: Any
    label: str
    hint: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """A search, `decoding=NAME`: its settings, and their controls, those of its filters apart."""

    name: str
    label: str
    node: Mapping[str, Any]
    controls: list[Control]
    filters: list[Control]


def choices(own: Mapping[str, Any], longest: int) -> list[Choice]:
    """Return all searches, the checkpoint's `own` first, with `max_length` at most `longest`."""
    folder = CONF / "decoding"
    base = (folder / "_base.yaml").read_text(encoding="utf-8")
    found = []
    for path in sorted(folder.glob("[!_]*.yaml")):
        text = path.read_text(encoding="utf-8")
        node = _with_own(yaml.safe_load(f"{base}\n{text}"), own)
        node["max_length"] = min(own.get("max_length", longest), longest)
        comments = dict(re.findall(r"^ *(\w+):.*?  # (.*)$", f"{base}\n{text}", re.M))
        own_controls = _controls("decoding", node, comments)
        filters = _controls("decoding.filters", node["filters"], comments)
        found.append(
            Choice(
                path.stem, text.partition("\n")[0].removeprefix("# "), node, own_controls, filters
            )
        )
    return sorted(found, key=lambda choice: choice.node["_target_"] != own.get("_target_"))


def _with_own(usual: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    node = {name: value for name, value in usual.items() if name not in ("defaults", "select")}
    if own.get("_target_") != node["_target_"]:
        return node
    node |= {name: own[name] for name in node.keys() & own.keys() - {"filters"}}
    filters = own.get("filters") or {}
    if filters.get("_target_", node["filters"]["_target_"]) == node["filters"]["_target_"]:
        node["filters"] = {
            name: filters.get(name, value) for name, value in node["filters"].items()
        }
    if node.get("n_best") == 1:
        node["n_best"] = min(node["width"], 3)  # found anyway, and the best stays the best
    return node


def _controls(key: str, settings: Mapping[str, Any], comments: Mapping[str, str]) -> list[Control]:
    hints = get_type_hints(locate(key, settings["_target_"]), include_extras=True)
    controls = []
    for name, value in settings.items():
        if name.startswith("_") or name == "filters":
            continue
        label, _, hint = comments.get(name, name).partition(": ")
        # words of filters stand here for the ids that the class takes
        kind = (
            bool
            if isinstance(value, bool)
            else list[str]
            if isinstance(value, list)
            else hints[name]
        )
        schema = TypeAdapter(BOUNDS.get(name, kind)).json_schema()
        schema = next(
            (each for each in schema.get("anyOf", ()) if each != {"type": "null"}), schema
        )
        controls.append(Control(f"{key}.{name}", name, value, label, hint, schema))
    return controls


def decoding_of(found: list[Choice], asked: Any) -> dict[str, Any]:
    """The decoding that a visitor asks for: `{"decoding": NAME, SETTING: VALUE, ..., "filters":
    {...}}`.

    Refuses unknown settings and those beyond the bounds of this page; the search refuses the rest
    when it is built.
    """
    if not isinstance(asked, dict) or not isinstance(asked.get("filters", {}), dict):
        raise CaptioningError(f"{quoted(asked)} is not a table of settings")
    choice = next((choice for choice in found if choice.name == asked.get("decoding")), None)
    if choice is None:
        names = ", ".join(choice.name for choice in found)
        raise CaptioningError(
            f"there is no decoding={quoted(asked.get('decoding'))}; allowed are {names}"
        )
    given = {key: value for key, value in asked.items() if key not in ("decoding", "filters")}
    filters = asked.get("filters", {})
    for path, part, controls in (
        ("decoding", given, choice.controls),
        ("decoding.filters", filters, choice.filters),
    ):
        known = [control.name for control in controls]
        for key, value in part.items():
            if key not in known:
                raise CaptioningError(no_setting(path, key, known))
            check_value(f"{path}.{key}", value, BOUNDS.get(key, Any))
    return {**choice.node, **given, "filters": {**choice.node["filters"], **filters}}
