import json
from pathlib import Path

import pytest

from captioning.report.views import print_views, views_table, write_views


def test_a_row_for_each_view(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = {"BLEU-4": 20.0, "CIDEr": 57.96, "repeated": 0.04, "first word entropy": 1.264, "word entropy": 2}
    dark = full | {"CIDEr": 9.04, "repeated": 20.0, "first word entropy": 7.705}
    record = {"scores": full, "views": {"full": full, "dark": dark}, "provenance": {}}
    (tmp_path / "scores.json").write_text(json.dumps(record))
    write_views(tmp_path)
    rows = (tmp_path / "views.md").read_text().splitlines()[2:]
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    assert cells[0] == ["view", "CIDEr (x 100)", "repeated (%)", "first word entropy (nats)", "word entropy (nats)"]
    assert cells[2:] == [["full", "58.0", "0.0", "1.26", "2.00"], ["dark", "9.0", "20.0", "7.71", "2.00"]]
    print_views(tmp_path)
    assert capsys.readouterr().out.splitlines()[-4:] == rows


def test_columns_that_no_view_has_are_left_out() -> None:
    table = views_table({"full": {"CIDEr": None, "repeated": 1.0}, "png": {"repeated": 2.0, "unseen pairs": 3.0}})
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]
    assert rows[0] == ["view", "repeated (%)", "unseen pairs (%)"]
    assert rows[2:] == [["full", "1.0", ""], ["png", "2.0", "3.0"]]
