"""The preset for a model of one's own."""

import numpy as np
from support import QUIET, SHAPES, composed, rows_of

from captioning import run
from captioning.run import apply_debug

pytestmark = QUIET


def test_two_batches_go_through_everything(elsewhere):
    """Of a frozen backbone no more features are computed than they need."""
    sizes = [size for size in SHAPES if not size.startswith(("data.num_workers", "trainer"))]
    sizes += ["data.batch_size=3", "data.eval_batch_size=2"]
    config = composed(*sizes, "trainer=cpu", "debug=true", "backbone.trainable=false")
    assert run.main.__wrapped__(config) is not None
    (folder,) = (elsewhere / "runs").iterdir()
    assert folder.name == "debug-spatial_transformer-seed1"
    assert len((folder / "captions.jsonl").read_text().splitlines()) == 4
    assert sum("train/nll" in row for row in rows_of(folder)) == 2
    cached = [len(np.load(path)) for path in (elsewhere / "cache").glob("features/*/features.npy")]
    assert sorted(cached) == [5, 5, 6]


def test_the_command_line_has_the_last_word(elsewhere):
    config = composed("debug=true", "trainer.max_epochs=4", "name=mine")
    apply_debug(config)
    assert (config.trainer.max_epochs, config.name) == (4, "mine")
    assert config.trainer.detect_anomaly
    usual = composed()
    apply_debug(usual)
    assert usual == composed()
