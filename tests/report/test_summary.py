"""The last thing a run prints, from the files of its folder."""

import json
from pathlib import Path

import pytest

from captioning.report.summary import print_summary

SCORES = {
    **{"BLEU-4": 77.25, "CIDEr": 104.5, "pointing": -1e-9, "attention entropy": 3.8918, "attention movement": 0.417},
    **{"length": 9.25, "of my own": 1.0, "x": None},
}
SHOWN = [
    "also measured",
    "pointing                            0.0  %",
    "attention entropy                  3.89  nats",
    "attention movement                 0.42  0-1",
    "length                              9.2  words",
    "of my own                          1.00",
    "x                                     -",
    "",
    "test score (0-100; CIDEr x 100)",
    "BLEU-4                             77.2",
    "CIDEr                             104.5",
]


def test_table_three_captions_and_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scores.json").write_text(json.dumps({"scores": SCORES, "provenance": {}}))
    lines = [{"image_id": i, "caption": f"caption {i}", "references": [f"first {i}", f"second {i}"]} for i in range(5)]
    (tmp_path / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    print_summary(tmp_path)
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[-len(SHOWN) :] == SHOWN
    assert "image 2: caption 2\n    reference: first 2\n    reference: second 2\n" in printed
    assert "caption 3" not in printed
    assert f"\nrun folder: {tmp_path}\n\nalso measured" in printed

    (tmp_path / "attention").mkdir()
    print_summary(tmp_path)
    assert f"pictures of attention: {tmp_path / 'attention'}" in capsys.readouterr().out


def test_captions_of_a_file_give_the_terminal_no_orders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scores.json").write_text(json.dumps({"scores": {"CIDEr": 1.0}, "provenance": {}}))
    orders = "a\x1b]0;title\x07 dog\u202e\x9b2J\r\nimage 9: fake"
    line = {"image_id": orders, "caption": orders, "references": [orders]}
    (tmp_path / "captions.jsonl").write_text(json.dumps(line) + "\n")
    print_summary(tmp_path)
    printed = capsys.readouterr().out
    assert all(character.isprintable() for character in printed.replace("\n", ""))
    shown = "a ]0;title dog 2J image 9: fake"
    assert f"\nimage {shown}: {shown}\n    reference: {shown}\n" in printed
