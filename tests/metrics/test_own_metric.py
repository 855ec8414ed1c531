"""A user's metric, named by its path beside ours: in the scorer, in an evaluation, in the table of scores."""

import json
import sys
from pathlib import Path

import pytest

from captioning import evaluate
from captioning.errors import CaptioningError
from captioning.metrics import Scorer, score_called
from captioning.metrics.scorer import scores_of

CODE = '''
class Overlap:
    def compute_score(self, references, captions):
        """The share of different words that some reference has."""
        scores = []
        for image, (caption,) in captions.items():
            words, known = set(caption.split()), set(" ".join(references[image]).split())
            scores.append(len(words & known) / len(words))
        return sum(scores) / len(scores), scores

class Best(Overlap):
    def compute_score(self, references, captions):
        _, scores = super().compute_score(references, captions)
        return max(scores), scores

class CIDEr(Overlap): ...
class Short:
    def compute_score(self, references, captions):
        return 0.0, [0.0]
class Needy:
    def __init__(self, size): ...
class Nothing: ...
'''


@pytest.fixture(scope="module", autouse=True)
def my(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mine")
    (folder / "my.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.syspath_prepend(folder)
        yield
        sys.modules.pop("my", None)


def test_it_is_scored_beside_ours():
    scorer = Scorer([["A dog, running", "a dog"], ["a red bus"]], metrics=["my.Overlap", "ROUGE-L", "my.Best"])
    scores = scorer.score({0: "a dog barks!", 1: "a bus"})
    assert [*scores.corpus] == ["ROUGE-L", "Overlap", "Best"]
    assert scores.corpus["Overlap"] == pytest.approx(100 * (2 / 3 + 1) / 2)
    assert scores.corpus["Best"] == 100
    assert [image["Overlap"] for image in scores.per_image] == pytest.approx([200 / 3, 100])
    # of what is no mean over images the bootstrap knows nothing
    assert [each.names for each in scores.statistics] == [("ROUGE-L",), ("Overlap",)]


def test_an_evaluation_compares_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    references = [{"image_id": i, "id": i, "caption": text} for i, text in enumerate(["a dog", "a red bus", "a cat"])]
    Path("references.json").write_text(json.dumps({"images": [{"id": i} for i in range(3)], "annotations": references}))
    for name, texts in {"ours": ["a dog", "a bus", "a cat"], "others": ["a dog", "no bus", "cats"]}.items():
        Path(f"{name}.json").write_text(json.dumps([{"image_id": i, "caption": text} for i, text in enumerate(texts)]))
    files = ["captions=ours.json", "references=references.json", "against=others.json"]
    monkeypatch.setattr(
        sys, "argv", ["captioning.evaluate", *files, "metrics=[BLEU,my.Overlap]", "name=e", "runs=runs"]
    )
    evaluate.main()
    assert json.loads(Path("runs/e/scores.json").read_text())["scores"]["Overlap"] == pytest.approx(100)
    compared = json.loads(Path("runs/e/comparison.json").read_text())["scores"]["Overlap"]
    assert (compared["ours"], compared["theirs"]) == pytest.approx((100, 50))
    lines = [json.loads(line) for line in Path("runs/e/captions.jsonl").read_text().splitlines()]
    assert all("Overlap" in line["scores"] for line in lines)
    assert "Overlap " in capsys.readouterr().out


def test_a_monitor_can_name_it():
    assert scores_of(["my.Overlap", "BLEU"]) == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "Overlap"]
    assert score_called("Overlap").group == "other scores"


@pytest.mark.parametrize("name", ["my.CIDEr", "my.Needy", "my.Nothing", "my.Missing", "missing_module.F1"])
def test_what_cannot_score_is_refused_when_the_scorer_is_made(name):
    with pytest.raises(CaptioningError, match=name):
        Scorer([["a dog"]], metrics=[name])


def test_a_score_for_each_caption():
    with pytest.raises(CaptioningError, match="Short"):
        Scorer([["a dog"], ["a cat"]], metrics=["my.Short"]).score({0: "a dog", 1: "a cat"})
