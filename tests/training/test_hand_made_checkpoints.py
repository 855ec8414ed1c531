"""A last.ckpt that somebody has written: training goes on from it, or ends in a sentence."""

import copy
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from captioning.errors import CaptioningError
from captioning.run import fit
from captioning.runs.checkpoint import with_digest
from captioning.runs.checkpoint_files import CheckpointFiles

from .world import QUIET, data, examples, soft, trainer

pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore:Be aware")]
SPLITS = {"train": examples(2), "val": examples(2), "test": examples(2)}
PLACES = [
    *(("optimizer_states",), ("lr_schedulers",), ("loops",), ("loops", "fit_loop"), ("CaptionData",), ("state_dict",)),
    *(("optimizer_states", 0), ("optimizer_states", 0, "state"), ("global_step",), ("epoch",), ("callbacks",)),
    *(("loops", "fit_loop", "epoch_progress"), ("lr_schedulers", 0), ("pytorch-lightning_version",)),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("run") / "last.ckpt"
    first = trainer(plugins=[CheckpointFiles()])
    first.fit(soft(), data(SPLITS))
    first.save_checkpoint(path)
    return {key: content for key, content in torch.load(path, weights_only=True).items() if key != "digest"}


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_going_on(saved: dict[str, Any], tmp_path: Path, place: tuple[Any, ...]) -> None:
    for value in (None, {"a": 1}, torch.zeros(3)):
        node = changed = copy.deepcopy(saved)
        for key in place[:-1]:
            node = node[key]
        node[place[-1]] = value
        torch.save(with_digest(changed), tmp_path / "last.ckpt")
        with suppress(CaptioningError):
            fit(trainer(max_epochs=2, plugins=[CheckpointFiles()]), soft(), data(SPLITS), tmp_path / "last.ckpt")
