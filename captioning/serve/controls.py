"""The searches that a visitor can choose, with controls for their settings.

They are the files of `conf/decoding`, described as `--help` does. Bounds are those of the search,
narrower where one visitor could take all of the machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import yaml
from pydantic import TypeAdapter

from captioning.config.registry import CONF, settings_of, target_of
from captioning.config.types import Config, between, check_value
from captioning.errors import CaptioningError, no_setting, quoted
from captioning.runs.evaluation.searches import UNTRUSTED_LIMITS

BOUNDS: Mapping[str, Any] = {
    **UNTRUSTED_LIMITS,
    "temperature": Annotated[float, between(0.01, 100)],
}


@dataclass(frozen=True)
class Control:
    """A setting; `schema` has JSON Schema's `type`, `minimum`, `maximum`, `enum`."""

    key: str
    name: str
    value: Any
    label: str
    hint: str
    schema: Config


@dataclass(frozen=True)
class DecodingChoice:
    """A search, `decoding=NAME`: its settings, and their controls, those of its filters apart."""

    name: str
    node: Config
    controls: list[Control]
    filters: list[Control]


def decoding_choices(own: Config, longest: int) -> list[DecodingChoice]:
    """Return all searches, the checkpoint's `own` first, with `max_length` at most `longest`."""
    folder = CONF / "decoding"
    base = yaml.safe_load((folder / "_base.yaml").read_text(encoding="utf-8"))
    choices = []
    for path in sorted(folder.glob("[!_]*.yaml")):
        node = _with_own(base | yaml.safe_load(path.read_text(encoding="utf-8")), own)
        node["max_length"] = min(own.get("max_length", longest), longest)
        controls = _controls("decoding", node)
        filters = _controls("decoding.filters", node["filters"])
        choices.append(DecodingChoice(path.stem, node, controls, filters))
    return sorted(choices, key=lambda choice: choice.node["_target_"] != own.get("_target_"))


def _with_own(defaults: Config, own: Config) -> Config:
    dropped = ("defaults", "beam_widths")
    node = {name: value for name, value in defaults.items() if name not in dropped}
    if own.get("_target_") != node["_target_"]:
        return node
    filters = own.get("filters") or {}
    if filters.get("_target_", node["filters"]["_target_"]) != node["filters"]["_target_"]:
        filters = {}
    node |= {name: own[name] for name in node.keys() & own.keys()}
    node["filters"] = {**defaults["filters"], **filters}
    if node.get("n_best") == 1:
        node["n_best"] = min(node["width"], 3)  # found anyway, and the best stays the best
    return node


def _controls(key: str, settings: Config) -> list[Control]:
    declared = settings_of(target_of(key, settings["_target_"]))
    controls = []
    for name, value in settings.items():
        if name.startswith("_") or name == "filters":
            continue
        label, _, hint = declared[name].text.partition(": ")
        schema = TypeAdapter(BOUNDS.get(name, declared[name].hint)).json_schema()
        schema, *_ = [s for s in schema.get("anyOf", [schema]) if s != {"type": "null"}]
        controls.append(Control(f"{key}.{name}", name, value, label, hint, schema))
    return controls


def requested_decoding(choices: Sequence[DecodingChoice], requested: Any) -> Config:
    """The decoding of a request: `{"decoding": NAME, SETTING: VALUE, ..., "filters": {...}}`.

    Refuses unknown settings and those beyond the bounds of this page; the search refuses the rest
    when it is built.
    """
    settings = dict(requested) if isinstance(requested, dict) else {}
    name = settings.pop("decoding", None)
    node = next((choice.node for choice in choices if choice.name == name), None)
    if node is None:
        names = ", ".join(choice.name for choice in choices)
        raise CaptioningError(f"there is no decoding={quoted(name)}; allowed are {names}")
    filters = _merged("decoding.filters", node["filters"], settings.pop("filters", {}))
    return {**_merged("decoding", node, settings), "filters": filters}


def _merged(key: str, node: Config, settings: Any) -> Config:
    if not isinstance(settings, dict):
        raise CaptioningError(f"{key}={quoted(settings)} is not a table of settings")
    allowed = [name for name in node if not name.startswith("_")]
    for name, value in settings.items():
        if name not in allowed:
            raise CaptioningError(no_setting(key, name, allowed))
        check_value(f"{key}.{name}", value, BOUNDS.get(name, Any))
    return {**node, **settings}
