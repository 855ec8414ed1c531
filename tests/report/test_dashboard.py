"""What `captioning report wandb=..` would send to W&B, against a stored specification."""

from pathlib import Path

import pytest
from json_files import read_json
from written import write_run

from captioning.report.__main__ import main

STORED = Path(__file__).with_name("dashboard.json")
DRAWN = {"__id__", "id"}  # of panels and of sets of runs


def told(node):
    """What a specification says, without what is drawn or left to W&B."""
    if isinstance(node, dict):
        kept = {key: told(value) for key, value in node.items() if key not in DRAWN}
        return {key: value for key, value in kept.items() if value not in (None, {}, [], "")}
    return [told(value) for value in node] if isinstance(node, list) else node


# of wandb-workspaces
@pytest.mark.filterwarnings("ignore::pydantic.PydanticDeprecatedSince20")
def test_what_is_sent(elsewhere, refused, monkeypatch):
    """Without a login the specification is written, and nothing is sent."""
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(elsewhere / "none"))
    for model, cider in (("sat_soft", 50.0), ("spatial_transformer", 40.0)):
        write_run(elsewhere / "runs", model, ciders=[cider] * 3)
    line = refused(main, "wandb=me/captions", out=None)
    assert line.startswith("wandb=me/captions cannot be written, and report/wandb.json has its")
    found = told(read_json("report/wandb.json"))
    text = Path("report/table.md").read_text()
    assert text in [block.pop("content", None) for block in found["report"]["blocks"]]
    assert found == read_json(STORED)
    assert "wandb=" in refused(main, "wandb=captions")
