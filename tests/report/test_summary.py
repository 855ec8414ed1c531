"""Results that a run or an evaluation prints at its end, from the files of its folder."""

import json
from pathlib import Path

import pytest

from captioning.report.summary import print_comparison, print_summary, print_views, views_table

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


def test_a_comparison_has_a_line_per_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_row_for_each_view(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = {"BLEU-4": 20.0, "CIDEr": 57.96, "repeated": 0.04, "first word entropy": 1.264, "word entropy": 2}
    dark = full | {"CIDEr": 9.04, "repeated": 20.0, "first word entropy": 7.705}
    record = {"scores": full, "views": {"full": full, "dark": dark}, "provenance": {}}
    (tmp_path / "scores.json").write_text(json.dumps(record))
    print_views(tmp_path)
    rows = (tmp_path / "views.md").read_text().splitlines()[2:]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    assert cells[0] == ["view", "CIDEr (x 100)", "repeated (%)", "first word entropy (nats)", "word entropy (nats)"]
    assert cells[2:] == [["full", "58.0", "0.0", "1.26", "2.00"], ["dark", "9.0", "20.0", "7.71", "2.00"]]
    assert capsys.readouterr().out.splitlines()[-4:] == rows


def test_columns_that_no_view_has_are_left_out() -> None:
    table = views_table({"full": {"CIDEr": None, "repeated": 1.0}, "png": {"repeated": 2.0, "unseen pairs": 3.0}})
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]
    assert rows[0] == ["view", "repeated (%)", "unseen pairs (%)"]
    assert rows[2:] == [["full", "1.0", ""], ["png", "2.0", "3.0"]]
