"""The searches that a visitor can choose, with their settings as controls, and what a choice means.

They are the files of `conf/decoding`: a setting's comment there explains it here, and its bounds are those of the
search's own annotations, narrower where one visitor could take all of the machine.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import yaml
from annotated_types import Interval
from pydantic import TypeAdapter

from captioning.config.registry import CONF, LOADER, locate
from captioning.config.searches import OF_OTHERS
from captioning.config.types import check_value, hints_of
from captioning.errors import CaptioningError, no_setting, quoted

NARROWER: Mapping[str, Any] = {**OF_OTHERS, "temperature": Annotated[float, Interval(ge=0.01, le=100)]}


@dataclass(frozen=True, slots=True)
class Control:
    """A setting.

    Attributes:
        name: as on the command line.
        value: that it begins with.
        hint: what it means.
        schema: what it may be, in the words of JSON Schema: `type`, `minimum`, `maximum`, `enum`.
    """

    name: str
    value: Any
    hint: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """A search.

    Attributes:
        name: `decoding=NAME`.
        node: its settings, as a configuration has them.
        controls: of the search itself.
        filters: of what it may not say.
    """

    name: str
    node: Mapping[str, Any]
    controls: list[Control] = field(default_factory=list)
    filters: list[Control] = field(default_factory=list)


def choices(own: Mapping[str, Any], longest: int) -> list[Choice]:
    """All searches, that of a checkpoint first, with its settings in the place of the usual ones.

    Args:
        own: the checkpoint's decoding, plain values.
        longest: caption that every model can read; no search begins with a longer one.
    """
    folder = CONF / "decoding"
    base = (folder / "_base.yaml").read_text(encoding="utf-8")
    found = []
    for path in sorted(folder.glob("[!_]*.yaml")):
        text = f"{base}\n{path.read_text(encoding='utf-8')}"
        usual: dict[str, Any] = yaml.load(text, LOADER)
        node = _changed(usual, own)
        found.append(_choice(path.stem, text, node | {"max_length": min(node["max_length"], longest)}))
    return sorted(found, key=lambda choice: choice.node["_target_"] != own.get("_target_"))


def _changed(usual: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The usual settings of a search with those of a checkpoint, where this is its search."""
    node = {name: value for name, value in usual.items() if name not in ("defaults", "select")}
    if own.get("_target_") != node["_target_"]:
        return node
    node |= {name: own[name] for name in node.keys() & own.keys() - {"filters"}}
    filters = own.get("filters") or {}
    if filters.get("_target_", node["filters"]["_target_"]) == node["filters"]["_target_"]:
        node["filters"] = {name: filters.get(name, value) for name, value in node["filters"].items()}
    if node.get("n_best") == 1:
        node["n_best"] = min(node["width"], 3)  # found anyway, and the best stays the best
    return node


def _choice(name: str, text: str, node: Mapping[str, Any]) -> Choice:
    hints = dict(re.findall(r"^ *(\w+):.*?  # (.*)$", text, re.M))
    parts = {"decoding": node, "decoding.filters": node["filters"]}
    search, filters = (hints_of(locate(place, part["_target_"])) for place, part in parts.items())

    def controls(settings: Mapping[str, Any], annotations: Mapping[str, Any]) -> list[Control]:
        return [
            Control(key, value, hints.get(key, ""), _schema(key, value, annotations))
            for key, value in settings.items()
            if not key.startswith("_") and key != "filters"
        ]

    return Choice(name, node, controls(node, search), controls(node["filters"], filters))


def _schema(name: str, value: Any, annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Of filters, words stand here for the ids that the classes take."""
    hint = bool if isinstance(value, bool) else list[str] if isinstance(value, list) else annotations[name]
    schema = TypeAdapter(NARROWER.get(name, hint)).json_schema()
    return next((kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}), schema)


def decoding_of(found: list[Choice], asked: Any) -> dict[str, Any]:
    """The decoding that a visitor asks for: `{"decoding": NAME, SETTING: VALUE, ..., "filters": {...}}`.

    Raises:
        CaptioningError: there is no such search or setting, or more is asked for than is given here; what the search
            itself refuses is seen when it is built.
    """
    if not isinstance(asked, dict) or not isinstance(asked.get("filters", {}), dict):
        raise CaptioningError(f"{quoted(asked)} are no settings; they are given by their names")
    node = next((choice.node for choice in found if choice.name == asked.get("decoding")), None)
    if node is None:
        names = ", ".join(choice.name for choice in found)
        raise CaptioningError(f"there is no decoding={quoted(asked.get('decoding'))}; there are {names}")
    filters = asked.get("filters", {})
    given = {key: value for key, value in asked.items() if key not in ("decoding", "filters")}
    for path, settings, known in (("decoding", given, node), ("decoding.filters", filters, node["filters"])):
        allowed = [key for key in known if not key.startswith("_") and key != "filters"]
        for key, value in settings.items():
            if key not in allowed:
                raise CaptioningError(no_setting(path, key, allowed))
            check_value(f"{path}.{key}", value, NARROWER.get(key, Any))
    return {**node, **given, "filters": {**node["filters"], **filters}}
