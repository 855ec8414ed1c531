"""Results that a run or an evaluation prints at its end, from the files of its folder."""

import json
from pathlib import Path

import pytest

from captioning.report.compare.__main__ import comparison_table
from captioning.report.summary import print_summary, print_views

SCORES = {
    **{
        "BLEU-4": 77.25,
        "CIDEr": 104.5,
        "pointing": -1e-9,
        "attention entropy": 3.8918,
        "attention movement": 0.417,
    },
    **{"length": 9.25, "of my own": 1.0, "x": None},
}
SHOWN = """
test score (0-100; CIDEr x 100)
BLEU-4                             77.2
CIDEr                             104.5

also measured
pointing                            0.0  %
attention entropy                  3.89  nats
attention movement                 0.42  0-1
length                              9.2  words
of my own                          1.00
x                                     -
"""


def write(folder: Path, *captions: dict[str, object], **record: object) -> None:
    (folder / "scores.json").write_text(json.dumps({"scores": SCORES, "provenance": {}} | record))
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in captions))


def test_table_three_captions_and_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Captions of a file give the terminal no orders."""
    orders = "a\x1b]0;title\x07 dog\u202e\x9b2J\r\nimage 9: fake"
    harm = {"image_id": orders, "caption": orders, "references": [orders]}
    plain = [
        {"image_id": i, "caption": f"caption {i}", "references": [f"first {i}", f"last {i}"]}
        for i in range(5)
    ]
    write(tmp_path, harm, *plain)
    (tmp_path / "attention").mkdir()
    print_summary(tmp_path)
    printed = capsys.readouterr().out
    assert printed.startswith(SHOWN)
    assert printed.endswith(
        f"\nrun folder: {tmp_path}\npictures of attention: {tmp_path / 'attention'}\n"
    )
    assert "image 1: caption 1\n    reference: first 1\n    reference: last 1\n" in printed
    assert "caption 2" not in printed
    assert all(character.isprintable() for character in printed.replace("\n", ""))
    shown = "a ]0;title dog 2J image 9: fake"
    assert f"\nimage {shown}: {shown}\n    reference: {shown}\n" in printed


@pytest.mark.parametrize(("ended", "cut"), [(90.0, None), (89.0, "11 %"), (0.0, "100 %")])
def test_captions_that_were_cut_are_a_warning(
    ended: float, cut: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    provenance = {"decoding": {"max_length": 15}}
    caption = {"image_id": 1, "caption": "a dog", "references": []}
    write(tmp_path, caption, scores={"BLEU-4": 2.9, "ended": ended}, provenance=provenance)
    print_summary(tmp_path)
    printed = capsys.readouterr().out
    assert ("warning" in printed) == (cut is not None)
    assert (
        cut is None
        or f"{cut} of the captions did not end by themselves: decoding.max_length=15 cut them"
        in printed
    )


def test_numbers_of_two_systems_have_their_columns() -> None:
    names = "ours", "theirs", "difference", "low", "high", "p"
    row = dict(zip(names, (24.34, 25.09, -0.75, -1.26, -0.04, 0.0619), strict=True))
    heading, bleu = comparison_table({"BLEU-4": row}, ("", "A", "B")).splitlines()
    assert bleu.split() == ["BLEU-4", "24.3", "25.1", "-0.8", "[-1.3,", "+0.0]", "0.062"]
    assert len(heading) == len(bleu)


def test_views_have_their_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = {"BLEU-4": 20.0, "CIDEr": 57.96, "repeated": 0.04, "first word entropy": 1.264}
    dark = {**full, "CIDEr": None, "repeated": 20.0, "first word entropy": 7.705}
    write(tmp_path, views={"full": full, "dark": dark})
    print_views(tmp_path)
    rows = (tmp_path / "views.md").read_text().splitlines()[2:]
    assert capsys.readouterr().out.splitlines()[-4:] == rows
    heading, _, *values = ([cell.strip() for cell in row.split("|")[1:-1]] for row in rows)
    assert heading == ["view", "CIDEr (x 100)", "repeated (%)", "first word entropy (nats)"]
    assert values == [["full", "58.0", "0.0", "1.26"], ["dark", "", "20.0", "7.71"]]
