"""Contrasts of recorded systems, and the settings in which these differ."""

from pathlib import Path

import pytest

from experiments import contrasts, training_code

EXPERIMENTS = Path(contrasts.__file__).parent


@pytest.mark.parametrize(
    "file",
    [
        "attention/contrasts_shapes.csv",
        "second_set/contrasts.csv",
        pytest.param("attention/contrasts.csv", marks=pytest.mark.soak),
        pytest.param("claims/contrasts.csv", marks=pytest.mark.soak),
    ],
)
def test_tables_are_those_of_the_records(file):
    path = EXPERIMENTS / file
    assert contrasts.table(path, "CIDEr") in path.with_name("table.md").read_text()


@pytest.mark.parametrize(
    "one, other, expected",
    [
        ({}, {}, set()),
        ({"optimizer.lr": "1"}, {"optimizer.lr": "2"}, {"optimizer.lr"}),
        # a part of another class counts once, with its arguments and the parts in it
        (
            {"model._target_": "A", "model.width": "1", "model.cell._target_": "C"},
            {"model._target_": "B", "model.layers": "2", "seed": "1"},
            {"model", "seed"},
        ),
        # one of the same class counts by its arguments, and not with names that begin like it
        (
            {"model._target_": "A", "model.cell._target_": "C", "model.cells": "3"},
            {"model._target_": "A", "model.cell._target_": "D", "model.cells": "4"},
            {"model.cell", "model.cells"},
        ),
    ],
)
def test_settings_in_which_two_systems_differ(one, other, expected):
    assert contrasts.changes(one, other) == expected


def test_the_code_of_every_record_is_known():
    """Else two commits that train alike would count as different code."""
    missing = set(training_code.recorded_commits()) - contrasts.CODE.keys()
    assert not missing, "python experiments/training_code.py writes them"


def test_a_run_is_compared_with_its_system_at_its_own_size():
    """Width 512 is the paper's; drawn scenes alone have 128 by default."""
    widths = {"spatial_transformer": 512, "spatial_transformer_small": 128}
    for model, width in widths.items():
        found = contrasts.composed_experiment("null", model)
        assert found is not None
        assert found["choices"] == {"model": model, "data": "shapes"}
        assert found["model"]["d_model"] == width
    assert contrasts.composed_experiment("no_such_experiment", "sat_soft_small") is None
