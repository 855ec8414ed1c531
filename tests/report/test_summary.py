"""The last thing a run prints, from the files of its folder."""

import json
from pathlib import Path

import pytest

from captioning.report.summary import print_summary


def test_table_three_captions_and_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scores.json").write_text(
        json.dumps({"scores": {"BLEU-4": 77.25, "CIDEr": 104.5, "x": None}, "provenance": {}})
    )
    lines = [{"image_id": i, "caption": f"caption {i}", "references": [f"first {i}", f"second {i}"]} for i in range(5)]
    (tmp_path / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    print_summary(tmp_path)
    printed = capsys.readouterr().out
    assert "BLEU-4                             77.2" in printed
    assert "CIDEr                             104.5" in printed
    assert f"\nx{'-':>38}\n" in printed
    assert "image 2: caption 2\n    reference: first 2\n    reference: second 2\n" in printed
    assert "caption 3" not in printed
    assert printed.endswith(f"run folder: {tmp_path}\n")

    (tmp_path / "attention").mkdir()
    print_summary(tmp_path)
    assert f"pictures of attention: {tmp_path / 'attention'}" in capsys.readouterr().out
