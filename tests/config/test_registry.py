"""What a configuration from a stranger may name."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from captioning.config.registry import CONF, build, modules_of, registered
from captioning.decoding import Filters, beam_search, greedy
from captioning.errors import CaptioningError

GREEDY = {"_target_": "captioning.decoding.greedy", "_partial_": True, "max_length": 5}
COMMANDS = [
    {"_target_": "sympy.sympify", "a": "1"},
    {"_target_": "os.system", "command": "true"},
    {"_target_": "torch.load", "f": "x"},
    {"_target_": "builtins.open", "file": "x", "mode": "w"},
    {"_target_": "captioning.captioner.TrainedCaptioner.from_checkpoint", "path": "x"},
    {"_target_": "captioning.decoding.greedy.greedy"},
    {"_target_": "torch.nn.Linear", "in_features": 1, "out_features": 1},
    {"_target_": "${oc.env:HOME}"},
    {"_target_": 5},
    {"_target_": ""},
    {"_target_": "."},
    {"_target_": "x" * 10_000},
    {},
    [],
    None,
    {**GREEDY, "_args_": [1]},
    {**GREEDY, "_recursive_": False},
    {**GREEDY, "_partial_": 1},
    {**GREEDY, "_partial_": [True]},
    {**GREEDY, "_partial_": False},
    {**GREEDY, "_convert_": "all"},
    {**GREEDY, 3: 4},
    {**GREEDY, "width": 3},
    {**GREEDY, "max_length": "five"},
]


def test_parts_are_what_the_shipped_configuration_names_at_their_place() -> None:
    assert registered("decoding").keys() >= {
        "captioning.decoding.greedy",
        "captioning.decoding.beam_search",
    }
    assert registered("decoding.filters").keys() == {"captioning.decoding.Filters"}
    assert "captioning.data.shapes.ShapesReader" in registered("data.reader")
    assert (
        "captioning.data.readers.coco.CocoSplit"
        in registered("data.reader.splits.train").keys() - registered("data.reader").keys()
    )
    for place in ("backbone", "model", "decoding", "data.reader"):
        assert all(target.startswith("captioning.") for target in registered(place)), place
    assert (CONF / "config.yaml").is_file()


def test_plain_values_become_parts() -> None:
    search = build(
        "decoding",
        {**GREEDY, "filters": {"_target_": "captioning.decoding.Filters", "min_length": 2}},
    )
    assert search.func is greedy
    assert search.keywords == {"max_length": 5, "filters": Filters(min_length=2)}
    assert (
        build("decoding", {"_target_": "captioning.decoding.beam_search", "_partial_": True}).func
        is beam_search
    )


@pytest.mark.parametrize("node", COMMANDS, ids=range(len(COMMANDS)))
def test_nothing_else_is_imported_or_called(node: Any) -> None:
    before = set(sys.modules)
    for place in [
        node,
        *([{**GREEDY, "filters": node}] if isinstance(node, dict) and node else []),
    ]:
        with pytest.raises(CaptioningError) as raised:
            build("decoding", place)
        assert len(str(raised.value)) < 700
    assert "sympy" not in set(sys.modules) - before


def test_parts_stand_only_where_they_belong_and_are_called_later_as_shipped() -> None:
    for place, node in (("model", GREEDY), ("decoding", {**GREEDY, "filters": GREEDY})):
        with pytest.raises(CaptioningError, match="no part of captioning that may stand there"):
            build(place, node)
    filters = {"_target_": "captioning.decoding.Filters"}
    cnn = {"_target_": "captioning.backbones.scratch.SmallCNN"}
    mlp = {"_target_": "captioning.models.parts.scores.AdditiveScore"}
    for place, node in (
        ("decoding", {**GREEDY, "filters": {**filters, "_partial_": True}}),
        ("decoding", {key: value for key, value in GREEDY.items() if key != "_partial_"}),
        ("backbone", {**cnn, "_partial_": True}),
        ("model.score", mlp),
    ):
        with pytest.raises(CaptioningError, match=r"\._partial_="):
            build(place, node)
    assert build("model.score", {**mlp, "_partial_": True}, width=7).keywords == {"width": 7}


def test_a_module_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "quiet_filter.py").write_text(
        "import os\nfrom shutil import rmtree\n\n\nclass Quiet:\n    def __init__(self, at_most: "
        "int = 3):\n"
        "        self.at_most = at_most\n\n    def __call__(self, scores, so_far):\n        return "
        "scores\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    node = {**GREEDY, "filters": {"_target_": "quiet_filter.Quiet", "at_most": 2}}
    with pytest.raises(CaptioningError, match=r"name its module: modules=\[quiet_filter\]"):
        build("decoding", node)
    assert "quiet_filter" not in sys.modules
    assert build("decoding", node, ["quiet_filter"]).keywords["filters"].at_most == 2
    for name in ("rmtree", "os.system", "os", "absent"):
        with pytest.raises(CaptioningError):
            build(
                "decoding",
                {**GREEDY, "filters": {"_target_": f"quiet_filter.{name}"}},
                ["quiet_filter"],
            )
    assert os.path.isdir(tmp_path)  # noqa: PTH112


def test_what_a_checkpoint_could_not_be_loaded_with_is_refused_before_training() -> None:
    for target in ("os.getcwd", "captioning.config.registry.Path", "absent_module.Filter"):
        own = {**GREEDY, "filters": {"_target_": target}}
        with pytest.raises(CaptioningError, match=target):
            build("decoding", own, modules_of(own))
