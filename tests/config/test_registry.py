"""What a configuration may name, and what a stranger's may not."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from refusals import refuses
from torch import nn
from torch.optim import Optimizer

from captioning.backbones.base import Backbone
from captioning.config.registry import CONF, build, check_part, modules_of, target_of
from captioning.config.schemas.run import RunSettings
from captioning.config.settings import with_role
from captioning.config.types import Role
from captioning.data.readers.reading import Reader
from captioning.decoding import Filters, beam_search, greedy
from captioning.errors import CaptioningError
from captioning.models import Captioner, Recurrent
from captioning.runs.evaluation.searches import SEARCH

GREEDY = {"_target_": "captioning.decoding.greedy", "_partial_": True, "max_length": 5}
HOSTILE = [
    {"_target_": "sympy.sympify", "a": "1"},
    {"_target_": "os.system", "command": "true"},
    {"_target_": "torch.load", "f": "x"},
    {"_target_": "builtins.open", "file": "x", "mode": "w"},
    {"_target_": "captioning.captioner.TrainedCaptioner.from_checkpoint", "path": "x"},
    {"_target_": "captioning.captioner.TrainedCaptioner"},
    {"_target_": "captioning.files.atomic_write", "path": "x"},
    {"_target_": "captioning.files.os"},
    {"_target_": "captioning.decoding.greedy.greedy"},
    {"_target_": "torch.nn.Linear", "in_features": 1, "out_features": 1},
    {"_target_": "${oc.env:HOME}"},
    {"_target_": 5},
    {"_target_": ""},
    {"_target_": "."},
    {"_target_": "captioning."},
    {"_target_": "captioning..run"},
    {"_target_": "x" * 10_000},
    {},
    [],
    None,
    *({**GREEDY, "_partial_": partial} for partial in (1, [True], False)),
    *({**GREEDY, name: None} for name in ("_args_", "_recursive_", "_convert_", 3, "width")),
    {**GREEDY, "max_length": "five"},
]
SHIPPED = {"backbone": Backbone, "model": Captioner, "decoding": SEARCH}


def shipped(group):
    files = sorted((CONF / group).glob("[!_]*.yaml"))
    named = [yaml.safe_load(file.read_text()).get("_target_") for file in files]
    return [target for target in dict.fromkeys(named) if target]


def test_plain_values_become_parts():
    filters = {"_target_": "captioning.decoding.Filters", "min_length": 2}
    search = build("decoding", SEARCH, {**GREEDY, "filters": filters})
    assert search.func is greedy
    assert search.keywords == {"max_length": 5, "filters": Filters(min_length=2)}
    beam = {"_target_": "captioning.decoding.beam_search", "_partial_": True}
    assert build("decoding", SEARCH, beam).func is beam_search


@pytest.mark.parametrize("node", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_else_is_imported_or_called(node):
    before = set(sys.modules)
    nodes = [node, *([{**GREEDY, "filters": node}] if isinstance(node, dict) and node else [])]
    for each in nodes:
        with pytest.raises(CaptioningError) as raised:
            build("decoding", SEARCH, each)
        assert len(str(raised.value)) < 700
    assert "sympy" not in set(sys.modules) - before
    assert not list(Path().glob("x*"))


@pytest.mark.parametrize("group", SHIPPED)
def test_a_part_stands_only_where_the_annotation_allows_it(group):
    for other, base in SHIPPED.items():
        for target in shipped(group):
            node = {"_target_": target, **({"_partial_": True} if group == "decoding" else {})}
            if other == group:
                check_part(other, base, node)
            else:
                with refuses("may not stand there"):
                    check_part(other, base, node)


def test_parts_within_parts_stand_where_their_parameter_says():
    model = {"_target_": "captioning.models.Recurrent"}
    mlp = {"_target_": "captioning.models.parts.scores.AdditiveScore", "_partial_": True}
    cell = {"_target_": "captioning.models.parts.cells.LSTM", "_partial_": True}
    part = check_part("model", Captioner, {**model, "score": mlp, "cell": cell})
    assert part.target is Recurrent
    for wrong in ({"score": cell}, {"cell": mlp}, {"score": {**mlp, "_partial_": False}}):
        with refuses(r"may not stand there|_partial_="):
            check_part("model", Captioner, {**model, **wrong})
    splits = {"train": {"_target_": "captioning.data.readers.coco.CocoReader"}}
    coco = {"_target_": "captioning.data.readers.coco.CocoReader", "splits": splits}
    with refuses(r"splits\.train names .* may not stand there"):
        check_part("data.reader", Reader, coco)


OWN = """
from shutil import rmtree

from torch import nn

from captioning.backbones.base import Backbone


class Quiet:
    def __init__(self, at_most: int = 3):
        self.at_most = at_most

    def __call__(self, scores, so_far):
        return scores


class Mine(Backbone):
    pass


class Other(nn.Module):
    pass
"""


def test_a_module_of_the_users_own(tmp_path, monkeypatch):
    (tmp_path / "quiet_filter.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    node = {**GREEDY, "filters": {"_target_": "quiet_filter.Quiet", "at_most": 2}}
    with refuses(r"name its module: modules=\[quiet_filter\]"):
        build("decoding", SEARCH, node)
    assert "quiet_filter" not in sys.modules
    own = ["quiet_filter"]
    assert build("decoding", SEARCH, node, own).keywords["filters"].at_most == 2
    check_part("backbone", Backbone, {"_target_": "quiet_filter.Mine"}, own)
    with refuses("may not stand there"):
        check_part("backbone", Backbone, {"_target_": "quiet_filter.Other"}, own)
    for name in ("rmtree", "os.system", "os", "absent"):
        filters = {"_target_": f"quiet_filter.{name}"}
        with pytest.raises(CaptioningError):
            build("decoding", SEARCH, {**GREEDY, "filters": filters}, own)


@pytest.mark.parametrize(
    "target", ["os.getcwd", "captioning.config.registry.Path", "absent.Filter"]
)
def test_what_a_checkpoint_could_not_be_loaded_with_is_refused(target):
    own = {**GREEDY, "filters": {"_target_": target}}
    with refuses(target):
        build("decoding", SEARCH, own, modules_of(own))


def test_any_class_of_the_right_kind_may_stand_in_ones_own_command():
    linear = {"_target_": "torch.nn.Linear", "in_features": 2, "out_features": 3}
    assert build("layer", nn.Module, linear, None).out_features == 3
    with refuses(r"layer\.in_featurs\. Did you mean in_features"):
        check_part("layer", nn.Module, {**linear, "in_featurs": 2}, None)


def test_a_list_of_settings_has_none_that_are_given_by_this_package():
    beam = {"_target_": "captioning.decoding.beam_search", "_partial_": True, "max_length": 5}
    adam = {"_target_": "torch.optim.Adam", "_partial_": True, "lr": 0.1}
    for key, base, node, settings, others in (
        ("decoding", SEARCH, beam, {"width", "max_length"}, {"model", "context", "forbidden"}),
        ("optimizer", Callable[..., Optimizer], adam, {"lr", "betas"}, {"params"}),
    ):
        with refuses(rf"there is no setting {key}\.beam_size") as refusal:
            check_part(key, base, {**node, "beam_size": 3}, None)
        listed = set(str(refusal.value).partition(f"Settings in {key}: ")[2].split(", "))
        assert settings <= listed
        assert not others & listed


@pytest.mark.parametrize("group", [*SHIPPED, "objective", "optimizer", "schedule"])
def test_extra_keys_are_those_that_no_class_takes(group):
    keys, parameters = set(), {"defaults", "_target_", "_partial_"}
    for path in (CONF / group).glob("*.yaml"):
        node = yaml.safe_load(path.read_text())
        keys |= node.keys()
        if node.get("_target_", "???") != "???":
            target = target_of(group, node["_target_"], None)
            parameters |= inspect.signature(target).parameters.keys()
    extra = {*with_role(RunSettings, Role.BESIDE)}
    assert {f"{group}.{key}" for key in keys - parameters} == {
        key for key in extra if key.startswith(f"{group}.")
    }
