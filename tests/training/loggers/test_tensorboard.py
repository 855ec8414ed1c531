"""Event files as TensorBoard itself reads them."""

import sys
from pathlib import Path

import pytest
from support import composed
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from captioning.config.check import check
from captioning.errors import CaptioningError
from captioning.training.loggers.tensorboard import TensorBoard


def test_what_comes_again_after_resuming_is_there_once(tmp_path: Path) -> None:
    """Also where the run was killed, and where another stage follows the end of one."""
    folder = tmp_path / "tensorboard"
    for first, offset in ((0, 0.0), (3, 0.5)):
        logger = TensorBoard(folder)
        for step in range(first, 5):
            logger.log_metrics({"train/nll": step + offset}, step)
            logger.finalize("success")
    logger.log_metrics({"test/CIDEr": 7.0}, 4)
    logger.finalize("success")
    found = EventAccumulator(str(folder)).Reload()
    assert [(e.step, e.value) for e in found.Scalars("train/nll")] == [(0, 0), (1, 1), (2, 2), (3, 3.5), (4, 4.5)]
    assert [(e.step, e.value) for e in found.Scalars("test/CIDEr")] == [(4, 7)]


def test_without_the_package_it_is_said_before_anything_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.utils.tensorboard", "captioning.training.loggers.tensorboard"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("captioning.training.loggers.tensorboard")
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(CaptioningError, match=r"logger=tensorboard needs .*pip install 'captioning\[tensorboard\]'"):
        check(composed("logger=tensorboard"))
