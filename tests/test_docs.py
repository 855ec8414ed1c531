"""The page of all settings is complete, and the pages of the site find what they link to."""

import json
import re

import pytest
import yaml
from docs.hooks import NAVIGATION, collect, navigation, with_equations
from docs.reference import reference

from captioning.__main__ import COMMANDS
from captioning.config.help import own_settings
from captioning.config.registry import CONF


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    collect(folder)
    return folder


def leaves(node, place=""):
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{place}{key}.")
        elif not str(key).startswith("_"):
            yield f"{place}{key}"


@pytest.fixture(scope="module")
def sections():
    return {(group, name): text for group, name, text in parsed(reference())}


def test_every_command_file_and_setting_has_its_row(sections):
    commands = reference().partition("\n## ")[0]
    assert all(f"| `captioning {name}` | " in commands for name in COMMANDS)
    for file in CONF.rglob("*.yaml"):
        group = "Commands" if file.parent == CONF else file.parent.relative_to(CONF).as_posix()
        content = yaml.safe_load(file.read_text()) or {}
        own = {key: value for key, value in content.items() if key not in ("defaults", "hydra")}
        rows = set(re.findall(r"^\| `([^`]+)` \|", sections[group, file.stem], re.M))
        listed = {key for key, _ in own_settings(file)} if group == "Commands" else set()
        assert rows == set(leaves(own)) | listed, file


def parsed(page):
    """Group, file and text of each section."""
    for group in page.split("\n## ")[1:]:
        for section in group.split("\n### ")[1:]:
            yield group.partition("\n")[0], section.partition("\n")[0], section


@pytest.mark.parametrize(
    "group, name, row",
    [
        # 1000 captions are the most that a search keeps
        ("decoding", "beam", "| `n_best` | `1` | integer ≥ 1 ≤ 1,000 | alternatives: captions"),
        # what the command itself checks
        ("Commands", "export", "| `half` | `false` | boolean | true: store weights in half"),
        # what `run` checks
        ("data", "_base", "| `views` | `1` | integer ≥ 1 ≤ 1,000 | versions of each training"),
        # of a part that its defaults name
        ("model", "aoa", "| `score.heads` | `8` | integer ≥ 1 ≤ 1,000 |"),
    ],
)
def test_a_row_has_default_bounds_and_comment(sections, group, name, row):
    assert row in sections[group, name]


def test_links_between_pages_lead_to_files_of_the_site(site):
    for page in site.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#\s:]+)[)#]", page.read_text()):
            found = page.parent / link
            assert found.is_file() or found.is_dir(), (page, link)
    assert [next(iter(entry)) for entry in navigation(site)] == list(NAVIGATION)


def test_equations_of_a_notebook_become_mathml_and_code_stays():
    cells = [("markdown", "a $x^2$ and\n$$y_1$$"), ("code", "cost = '$5 or $6'")]
    notebook = {"cells": [{"cell_type": kind, "source": source} for kind, source in cells]}
    prose, code = json.loads(with_equations(json.dumps(notebook)))["cells"]
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in prose["source"]
    assert 'display="block"' in prose["source"]
    assert "$" not in prose["source"]
    assert code["source"] == cells[1][1]
