"""The page of all settings is complete, and the pages of the site find what they link to."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from captioning.__main__ import COMMANDS, about
from captioning.config.registry import CONF
from captioning.docs.reference import reference
from captioning.docs.site import (
    CONFIGURATION,
    NAVIGATION,
    REPORT,
    collect,
    navigation,
    with_equations,
)

ABOUT = {name: about(name) for name in COMMANDS}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    collect(folder, ABOUT)
    return folder


def leaves(node: Any, place: str = "") -> Iterator[str]:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{place}{key}.")
        elif not str(key).startswith("_"):
            yield f"{place}{key}"


def test_every_command_file_and_setting_has_its_row() -> None:
    sections = {(group, name): text for group, name, text in parsed(reference(ABOUT))}
    commands = reference(ABOUT).partition("\n## ")[0]
    assert all(f"| `captioning {name}` | " in commands for name in COMMANDS)
    for file in CONF.rglob("*.yaml"):
        group = "Commands" if file.parent == CONF else file.parent.relative_to(CONF).as_posix()
        content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        wanted = set(
            leaves(
                {key: value for key, value in content.items() if key not in ("defaults", "hydra")}
            )
        )
        assert wanted == set(re.findall(r"^\| `([^`]+)` \|", sections[group, file.stem], re.M)), (
            file
        )


def parsed(page: str) -> Iterator[tuple[str, str, str]]:
    """Group, file and text of each section."""
    for group in page.split("\n## ")[1:]:
        for section in group.split("\n### ")[1:]:
            yield group.partition("\n")[0], section.partition("\n")[0], section


def test_a_row_has_default_bounds_and_comment() -> None:
    sections = {(group, name): text for group, name, text in parsed(reference(ABOUT))}
    rows = {
        # 1000 captions are the most that a search keeps
        (
            "decoding",
            "beam",
        ): "| `n_best` | `1` | integer ≥ 1 ≤ 1,000 | alternatives: captions per image",
        (
            "Commands",
            "export",
        ): "| `format` | `weights` | `weights`, `onnx` |",  # what the command itself checks
        (
            "data",
            "_base",
        ): "| `views` | `1` | integer ≥ 1 ≤ 1,000 | of each training "
        "photograph",  # what `run` checks
        (
            "model",
            "aoa",
        ): "| `score.heads` | `8` | integer ≥ 1 ≤ 1,000 |",  # of a part that its defaults name
    }
    for section, row in rows.items():
        assert row in sections[section]


def test_links_between_pages_lead_to_files_of_the_site(site: Path) -> None:
    for page in site.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#\s:]+)[)#]", page.read_text(encoding="utf-8")):
            found = page.parent / link
            assert found.is_file() or found.is_dir(), (page, link)
    assert (site / "experiments" / "zoo_flickr8k" / REPORT).is_file()
    assert [next(iter(entry)) for entry in navigation(site)] == list(NAVIGATION)


def test_the_systems_colours_have_both_palettes() -> None:
    """Material's script reads one of them, and ends with an error where it is not there."""
    media = {each["media"] for each in CONFIGURATION["theme"]["palette"]}
    schemes = {f"(prefers-color-scheme: {name})" for name in ("light", "dark")}
    assert "(prefers-color-scheme)" not in media or schemes <= media


def test_equations_of_a_notebook_become_mathml_and_code_stays() -> None:
    cells = [("markdown", "a $x^2$ and\n$$y_1$$"), ("code", "cost = '$5 or $6'")]
    notebook = {"cells": [{"cell_type": kind, "source": source} for kind, source in cells]}
    prose, code = json.loads(with_equations(json.dumps(notebook)))["cells"]
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in prose["source"]
    assert 'display="block"' in prose["source"]
    assert "$" not in prose["source"]
    assert code["source"] == cells[1][1]
