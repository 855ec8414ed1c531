"""The commit and the code that scores come from, and the lines of captions."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from captioning.data.example import Example, photographs
from captioning.metrics import Scores
from captioning.runs import results
from captioning.runs.results import write_captions


def test_the_commit_is_that_of_the_checkout_which_has_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of a foreign one around it, as where it is installed into a virtual environment in the
    user's repository.
    """
    head = subprocess.run(
        ["git", "-C", str(results.PACKAGE), "rev-parse", "HEAD"], capture_output=True, text=True
    )
    assert (results.commit() or "").removesuffix("+") == head.stdout.strip()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "theirs"], check=True)
    copy = shutil.copy(results.__file__, tmp_path)
    monkeypatch.setattr(results, "__file__", copy)
    assert results.commit() is None
    subprocess.run([*git, "add", copy], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "now it is theirs"], check=True)
    assert results.commit() is not None


def test_every_source_is_in_the_digest_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "PACKAGE", tmp_path)
    found = set()
    for name, source in (("a.py", ""), ("a.py", "X = 1"), ("below/b.py", "X = 1")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
        found.add(results.code_digest.__wrapped__())
    assert len(found) == 3


def test_photographs_have_paths_below_the_folder_and_scores_are_as_computed(tmp_path: Path) -> None:
    """The path of a sentence is that of a text, which differs from machine to machine. Rounded to
    four decimals two scores would be equal; one that is no number is null.
    """
    paths = [tmp_path / "images" / "1.jpg", tmp_path / "test.de", Path("/b.jpg")]
    sources = (), ("eine", "katze"), ()
    examples = [Example(i, paths[i], (), source=sources[i]) for i in range(3)]
    values = [1.2345678901234567, 1.2345678901234569, float("nan")]
    scores = Scores({}, [{"BLEU-4": value} for value in values], {})
    columns = [0, 1, 2], [["a cat"]] * 3, [["A cat."]] * 3
    write_captions(tmp_path / "captions.jsonl", *columns, scores, photographs(examples, tmp_path))
    lines = [json.loads(line) for line in (tmp_path / "captions.jsonl").read_text().splitlines()]
    assert [line.get("photograph") for line in lines] == ["images/1.jpg", None, "/b.jpg"]
    assert [line["scores"]["BLEU-4"] for line in lines] == [*values[:2], None]
