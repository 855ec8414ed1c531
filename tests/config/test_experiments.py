"""Experiments composed while a command runs, which Hydra has composed itself."""

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from captioning.config.registry import CONF
from captioning.runs.settings import composed_experiment


def test_an_experiment_is_composed_within_a_command_and_leaves_it_as_it_was() -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        running = GlobalHydra.instance().hydra
        for experiment in ("zoo_shapes", "no_such_experiment", "zoo_shapes"):
            found = composed_experiment(experiment, "sat_soft_small")
            assert (found is not None) == (experiment == "zoo_shapes")
            assert GlobalHydra.instance().hydra is running
    assert found is not None
    assert found["choices"] == {"model": "sat_soft_small", "data": "shapes"}
    assert found["trainer"]["max_epochs"] == 5  # as conf/experiment/zoo_shapes.yaml has it
