"""Which pictures the callback draws; `tests/report/test_panels.py` looks at the pictures."""

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from captioning.training.callbacks import attention_panels
from captioning.training.callbacks.attention_panels import AttentionPanels

from ..tested import CELLS, SAID, Pointer, run_test
from ..world import QUIET, module

pytestmark = QUIET


def test_words_and_maps_of_each_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real drawing, listened to: words without EOS, one map per word, at the photograph's own bright cell."""
    drawn: dict[str, Any] = {}
    draw = attention_panels.save_panel

    def listening(path: Path, photograph: torch.Tensor, words: list[str], maps: torch.Tensor, title: str) -> None:
        drawn[path.name] = (photograph, words, maps, title)
        draw(path, photograph, words, maps, title)

    monkeypatch.setattr(attention_panels, "save_panel", listening)
    run_test(tmp_path, [AttentionPanels(tmp_path / "attention", images=2)])
    assert list(drawn) == ["77.png", "1.png"]
    for i, (photograph, words, maps, title) in enumerate(drawn.values()):
        assert words == SAID
        assert title == "red square left"
        assert maps.shape == (3, 3, 3)
        assert maps.flatten(1).argmax(dim=1).tolist() == [CELLS[i]] * 3
        assert photograph.shape == (3, 6, 6)
        assert photograph[:, 0, 0].tolist() == pytest.approx([20 * i / 255, 50 / 255, 90 / 255])
        with Image.open(tmp_path / "attention" / list(drawn)[i]) as panel:
            assert panel.format == "PNG"


def test_all_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the model has for what its backbone sees in the photograph, by their names."""
    drawn: list[tuple[Any, ...]] = []
    monkeypatch.setattr(attention_panels, "save_panel", lambda *arguments, title: drawn.append(arguments))
    run_test(tmp_path, [AttentionPanels(tmp_path / "attention", images=1, maps="all")])
    ((path, photograph, words, maps),) = drawn
    assert path.name == "77.png"
    assert words == SAID
    backbone = module(Pointer()).backbone
    context = backbone.context(backbone((255 * photograph[None]).to(torch.uint8)))
    expected = (10 * context.vectors[0, :, 0]).softmax(dim=0).view(1, 3, 3).expand(len(SAID), -1, -1)
    torch.testing.assert_close(maps, {"spot 1": expected, "spot 2": torch.full((3, 3, 3), 1 / 9)})


def test_no_images_no_folder(tmp_path: Path) -> None:
    run_test(tmp_path, [AttentionPanels(tmp_path / "attention", images=0)])
    assert not (tmp_path / "attention").exists()
