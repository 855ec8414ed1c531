import resource
from pathlib import Path

import pytest
import torch

from captioning.errors import CaptioningError
from captioning.runs.checkpoint_files import CheckpointFiles


def content(number: int) -> dict[str, object]:
    return {"captioning": {}, "state_dict": {"weight": torch.full((1000,), float(number))}}


def test_the_one_before_is_kept(tmp_path: Path) -> None:
    files, last = CheckpointFiles(), tmp_path / "checkpoints" / "last.ckpt"
    for number in range(3):
        files.save_checkpoint(content(number), last)
    files.save_checkpoint(content(7), last.with_name("best.ckpt"))
    files.save_checkpoint(content(8), last.with_name("best.ckpt"))
    found = {path.name: files.load_checkpoint(path)["state_dict"]["weight"][0] for path in last.parent.iterdir()}
    assert found == {"last.ckpt": 2, "previous.ckpt": 1, "best.ckpt": 8}


def test_a_full_disk_harms_nothing(tmp_path: Path) -> None:
    files, last = CheckpointFiles(), tmp_path / "last.ckpt"
    files.save_checkpoint(content(0), last)
    files.save_checkpoint(content(1), last)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))  # Python ignores the signal, so write fails
    try:
        with pytest.raises(CaptioningError, match=r"cannot write .*last\.ckpt: .*resume=true"):
            files.save_checkpoint(content(2), last)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_code_is_refused(tmp_path: Path) -> None:
    torch.save({"captioning": {}, "state_dict": {}, "more": Path("code")}, tmp_path / "last.ckpt")
    with pytest.raises(CaptioningError, match="holds Python objects"):
        CheckpointFiles().load_checkpoint(tmp_path / "last.ckpt")
