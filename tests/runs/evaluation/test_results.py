"""The lines of captions.jsonl."""

from pathlib import Path

from json_files import read_lines

from captioning.data.example import Example, image_names
from captioning.metrics import Scores
from captioning.runs.evaluation.captions import write_captions


def test_photographs_have_paths_below_the_folder_and_scores_are_as_computed(tmp_path):
    """The path of a sentence is that of a text, which differs from machine to machine. Rounded to
    four decimals two scores would be equal; one that is no number is null.
    """
    paths = [tmp_path / "images" / "1.jpg", tmp_path / "test.de", Path("/b.jpg")]
    sources = (), ("eine", "katze"), ()
    examples = [Example(i, paths[i], (), source=sources[i]) for i in range(3)]
    values = [1.2345678901234567, 1.2345678901234569, float("nan")]
    scores = Scores({}, [{"BLEU-4": value} for value in values], {})
    columns = [0, 1, 2], [["a cat"]] * 3, [["A cat."]] * 3
    names = image_names(examples, tmp_path)
    write_captions(tmp_path / "captions.jsonl", *columns, names, [""] * 3, scores)
    lines = read_lines(tmp_path / "captions.jsonl")
    assert [line.get("photograph") for line in lines] == ["images/1.jpg", None, "/b.jpg"]
    assert [line["scores"]["BLEU-4"] for line in lines] == [*values[:2], None]
