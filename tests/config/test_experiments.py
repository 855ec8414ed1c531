"""Experiments composed while a command runs, which Hydra has composed itself."""

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from captioning.config.registry import CONF
from captioning.runs.settings import composed_experiment


def test_an_experiment_is_composed_within_a_command_and_leaves_it_as_it_was():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        running = GlobalHydra.instance().hydra
        for experiment in ("zoo_shapes", "no_such_experiment", "zoo_shapes"):
            found = composed_experiment(experiment, "sat_soft_small")
            assert (found is not None) == (experiment == "zoo_shapes")
            assert GlobalHydra.instance().hydra is running
    assert found is not None
    assert found["choices"] == {"model": "sat_soft_small", "data": "shapes"}
    assert found["trainer"]["max_epochs"] == 5  # as conf/experiment/zoo_shapes.yaml has it


def test_a_run_is_compared_with_its_system_at_its_own_size():
    """Width 512 is the paper's; drawn scenes alone have 128 by default."""
    widths = {"spatial_transformer": 512, "spatial_transformer_small": 128}
    for model, width in widths.items():
        found = composed_experiment("null", model)
        assert found is not None
        assert found["choices"] == {"model": model, "data": "shapes"}
        assert found["model"]["d_model"] == width
