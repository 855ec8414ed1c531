"""Results that a run or an evaluation prints at its end, from the files of its folder."""

import pytest
from json_files import write_json, write_lines

from captioning.report.summary import print_summary

SCORES = {
    "BLEU-4": 77.25,
    "CIDEr": 104.5,
    "pointing": -1e-9,
    "attention entropy": 3.8918,
    "length": 9.25,
    "of my own": 1.0,
    "CIDEr (images shuffled)": 50.62,
    "x": None,
}
SHOWN = """
test score (0-100; CIDEr x 100)
BLEU-4                             77.2
CIDEr                             104.5
of my own                          1.00
pointing                            0.0  %
attention entropy                  3.89  nats
length                              9.2  words
chance level, by the captions of other images: CIDEr 50.6
"""


def write(folder, *captions, **record):
    write_json(folder / "scores.json", {"scores": SCORES, "provenance": {}} | record)
    write_lines(folder / "captions.jsonl", captions)


def test_the_end_of_a_job_fits_a_glance(tmp_path, capsys):
    """Captions of a file give the terminal no orders."""
    orders = "a\x1b]0;title\x07 dog\u202e\x9b2J\r\nimage 9: fake"
    write(tmp_path, {"image_id": orders, "caption": orders, "references": 9 * [orders]})
    print_summary(tmp_path)
    shown = "a ]0;title dog 2J image 9: fake"
    printed = f"{SHOWN}image {shown}: {shown}\nrun folder: {tmp_path}\n"
    assert capsys.readouterr().out == printed


def test_one_caption_for_all_is_a_warning(tmp_path, capsys):
    write(tmp_path, *({"image_id": i, "caption": "a dog", "references": ["x"]} for i in range(3)))
    print_summary(tmp_path)
    assert "warning: 3 of 3 captions are the same: a dog\n" in capsys.readouterr().out


@pytest.mark.parametrize("ended, cut", [(90.0, ""), (89.0, "11 %")])
def test_captions_that_were_cut_are_a_warning(ended, cut, tmp_path, capsys):
    provenance = {"decoding": {"max_length": 15}}
    caption = {"image_id": 1, "caption": "a dog", "references": []}
    write(tmp_path, caption, scores={"BLEU-4": 2.9, "ended": ended}, provenance=provenance)
    print_summary(tmp_path)
    printed = capsys.readouterr().out
    assert ("warning" in printed) == bool(cut)
    assert f"{cut} of the captions did not end" in printed or not cut
