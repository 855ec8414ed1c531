"""The preset for a model of one's own."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support import QUIET, SHAPES, checked, composed, rows_of

from captioning import run
from captioning.errors import CaptioningError
from captioning.run import apply_debug

pytestmark = QUIET


def test_two_batches_go_through_everything(elsewhere: Path) -> None:
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


def test_a_few_images_again_and_again(elsewhere: Path, printed: Callable[..., str]) -> None:
    """What the refusal of Lightning's overfit_batches names: the loss of the same images falls."""
    sizes = [size for size in SHAPES if not size.startswith(("data.num_workers", "trainer"))]
    more = ["trainer.limit_train_batches=1.0", "trainer.max_epochs=15", "data.batch_size=2"]
    more += ["trainer.check_val_every_n_epoch=15", "data.eval_batch_size=2"]
    more += ["optimizer.lr=0.03", "model.dropout=0"]
    said = printed(run.main, *sizes, "trainer=cpu", "debug=true", *more)
    assert "images: train 4, val 4, test 4;" in said
    (folder,) = (elsewhere / "runs").iterdir()
    losses = [row["train/nll"] for row in rows_of(folder) if "train/nll" in row]
    assert len(losses) == 15 * 2
    assert losses[-1] < losses[0] / 2


def test_the_command_line_has_the_last_word(elsewhere: Path) -> None:
    config = composed("debug=true", "trainer.max_epochs=4", "name=mine")
    apply_debug(config)
    assert (config.trainer.max_epochs, config.name, config.trainer.detect_anomaly) == (
        4,
        "mine",
        True,
    )
    usual = composed()
    apply_debug(usual)
    assert usual == composed()
    with pytest.raises(CaptioningError, match="debug=3"):
        checked(composed("debug=3"))
