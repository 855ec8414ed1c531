import json
from pathlib import Path

import pytest

from captioning.report.comparison import print_comparison


def test_one_line_per_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"ours": 24.34, "theirs": 25.09, "difference": -0.75, "low": -1.26, "high": -0.04, "p": 0.0619}
    record = {
        "against": {"file": "other.json"},
        "images": 5000,
        "samples": 1000,
        "scores": {"BLEU-4": row, "CIDEr": row},
    }
    (tmp_path / "comparison.json").write_text(json.dumps(record))
    print_comparison(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert "against other.json, 5000 images, 1000 bootstrap samples" in lines
    (bleu,) = [line for line in lines if line.startswith("BLEU-4")]
    assert bleu.split() == ["BLEU-4", "24.3", "25.1", "-0.8", "[-1.3,", "+0.0]", "0.062"]
    assert any(line.startswith("CIDEr ") for line in lines)
    heading = lines[lines.index(bleu) - 1]
    for end in ("these", "others", "difference", "interval", " p"):
        assert end in heading
    assert len(heading) == len(bleu)
