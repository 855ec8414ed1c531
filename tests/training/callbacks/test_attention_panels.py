"""Which pictures the callback draws; `tests/report/test_panels.py` looks at the pictures."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from captioning.data.example import Example
from captioning.decoding import Caption
from captioning.training.callbacks import attention_panels
from captioning.training.callbacks.attention_panels import AttentionPanels

from ..tested import CELLS, SAID, Pointer, run_test
from ..world import QUIET, module

pytestmark = QUIET


def test_words_and_maps_of_each_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real drawing, listened to: words without EOS, one map per word, at the photograph's own bright cell."""
    drawn: dict[str, Any] = {}
    draw = attention_panels.save_panel

    def listening(path: Path, photograph: torch.Tensor, words: list[str], maps: torch.Tensor, **more: Any) -> None:
        drawn[path.name] = (photograph, words, maps, more)
        draw(path, photograph, words, maps, **more)

    monkeypatch.setattr(attention_panels, "save_panel", listening)
    run_test(tmp_path, [AttentionPanels(tmp_path / "attention", images=2)])
    assert list(drawn) == ["77.png", "1.png"]
    for i, (photograph, words, maps, more) in enumerate(drawn.values()):
        assert words == SAID
        assert more["title"] == "red square left"
        assert more["references"] == ["A red square, left!", "disc and a rather long\u2028rest"]
        assert more["frame"] == (0, 0, 1, 1)
        assert maps.shape == (3, 3, 3)
        assert maps.flatten(1).argmax(dim=1).tolist() == [CELLS[i]] * 3
        assert photograph.shape == (3, 12, 12)  # the file's own size, of which the network sees half
        assert photograph[:, 0, 0].tolist() == pytest.approx([20 * i / 255, 50 / 255, 90 / 255])
        with Image.open(tmp_path / "attention" / list(drawn)[i]) as panel:
            assert panel.format == "PNG"
        assert (tmp_path / "attention" / list(drawn)[i]).with_suffix(".pdf").exists()


def test_all_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the model has for what its backbone sees in the photograph, by their names."""
    drawn: list[tuple[Any, ...]] = []
    monkeypatch.setattr(attention_panels, "save_panel", lambda *arguments, **more: drawn.append(arguments))
    run_test(tmp_path, [AttentionPanels(tmp_path / "attention", images=1, maps="all")])
    ((path, photograph, words, maps),) = drawn
    assert path.name == "77.png"
    assert words == SAID
    backbone = module(Pointer()).backbone
    pixels = (255 * photograph[None, :, ::2, ::2]).to(torch.uint8)  # of one colour
    context = backbone.context(backbone(pixels))
    expected = (10 * context.vectors[0, :, 0]).softmax(dim=0).view(1, 3, 3).expand(len(SAID), -1, -1)
    torch.testing.assert_close(maps, {"spot 1": expected, "spot 2": torch.full((3, 3, 3), 1 / 9)})


def test_no_images_no_folder(tmp_path: Path) -> None:
    run_test(tmp_path, [AttentionPanels(tmp_path / "attention", images=0)])
    assert not (tmp_path / "attention").exists()


def test_a_photograph_that_is_no_square_is_drawn_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the maps where the network looked, in the middle of it."""
    drawn: list[tuple[torch.Tensor, Any]] = []
    monkeypatch.setattr(attention_panels, "save_panel", lambda *a, **more: drawn.append((a[1], more["frame"])))
    path = tmp_path / "wide.png"
    Image.new("RGB", (40, 20), (10, 20, 30)).save(path)
    cropping = module(Pointer())
    cropping.backbone.transform = replace(cropping.backbone.transform, resize="crop")
    caption = Caption([4, 5], 0.0, torch.full((2, 9), 1 / 9))
    attention_panels.draw(tmp_path / "panel.png", cropping, Example(1, path, ()), caption)
    ((photograph, frame),) = drawn
    assert photograph.shape == (3, 20, 40)
    assert frame == (0.25, 0, 0.75, 1)
