"""Runs on Chinese and on Vietnamese captions, from the data to scores and pages."""

import json
import re
import sys
from pathlib import Path

import pytest
from json_files import read_json
from pictures import plain
from support import QUIET, called, captions_of, composed, make_photographs, miniature

import captioning
from captioning import evaluate, run
from captioning.config.registry import CONF
from captioning.report import __main__ as report
from captioning.report.compare import __main__ as compare
from captioning.runs.evaluation.attention_file import FILE, read

pytestmark = QUIET
RECORD = CONF.parent / "experiments" / "languages_flickr8k"
CHINESE = [
    f"hydra.searchpath=[file://{RECORD}]",
    "data=flickr8k_chinese",
    "data.root=photographs",
    "backbone=small_cnn",
    "callbacks.attention.images=1",
]


def test_chinese_by_character(elsewhere, capsys):
    make_photographs(Path("photographs"))
    config = miniature(composed(*CHINESE, "optimizer.lr=0.1", "model=sat_soft"))
    config.test, config.trainer.limit_train_batches, config.trainer.max_epochs = True, 1.0, 8
    run.main.__wrapped__(config)
    (folder,) = Path("runs").iterdir()
    record = read_json(folder / "scores.json")
    assert {"BLEU-4", "CIDEr", "length"} <= record["scores"].keys()
    assert not {"METEOR", "bad_endings"} & record["scores"].keys()
    assert record["provenance"]["tokenizer"] == "characters, language=zh"
    assert "|lang:zh|tok:characters|" in record["provenance"]["signatures"]["CIDEr"]
    (line,) = captions_of(folder)
    assert line["references"] == ["一只狗在跑。", "狗"]
    assert set(line["caption"]) <= set("一只狗在跑")
    checkpoint = folder / "checkpoints" / "best.ckpt"
    assert (
        captioning.load(checkpoint, "cpu").caption("photographs/images/3.jpg")[0].caption
        == line["caption"]
    )
    modules = "modules=[experiments.languages_flickr8k.languages]"
    called(evaluate.main, f"checkpoint={checkpoint}", "device=cpu", modules)
    again = read_json("runs/evaluate/scores.json")["scores"]
    assert again == pytest.approx({name: record["scores"][name] for name in again}, abs=1e-3)


def test_unknown_words_are_counted_and_many_are_warned_of(elsewhere, caplog):
    make_photographs(Path("photographs"))
    caplog.set_level("INFO")
    config = miniature(composed(*CHINESE, "data.tokens=words", "data.language=zh"))
    config.data.vocabulary.max_size = 5
    run.main.__wrapped__(config)
    assert "vocabulary: 5 (50.0 % of words unknown)" in caplog.text
    assert "50 % of the words of the training captions are unknown: " in caplog.text


LONGEST_MATCH = """
import re

def split(text):
    return re.findall(r"học sinh|xe đạp|\\w+", text.lower())
"""


@pytest.fixture
def segmenter(elsewhere, monkeypatch):
    """A function whose words have blanks inside."""
    Path("segmenter.py").write_text(LONGEST_MATCH)
    monkeypatch.syspath_prepend(Path.cwd())
    yield "segmenter.split"
    sys.modules.pop("segmenter", None)


def test_vietnamese_words_with_blanks_inside(segmenter):
    text, words = "Học sinh đi xe đạp.", ["học sinh", "đi", "xe đạp"]
    rows = ["image,caption,split"]
    for i in range(12):
        plain(Path(f"data/{i}.png"), colour=(20 * i, 9, 9))
        rows.append(f"{i}.png,{text},{'train' if i < 8 else 'val' if i < 10 else 'test'}")
    Path("data/captions.csv").write_text("\n".join(rows))
    own = "data=csv", "data.root=data", "data.language=vi", f"data.tokens={segmenter}"
    few = "backbone=small_cnn", "callbacks.attention.images=1", "optimizer.lr=0.1"
    config = miniature(composed(*own, *few, "model=sat_soft"))
    config.test, config.trainer.limit_train_batches, config.trainer.max_epochs = True, 1.0, 8
    run.main.__wrapped__(config)
    (folder,) = Path("runs").iterdir()
    captioner = captioning.load(folder / "checkpoints" / "best.ckpt", "cpu", modules=["segmenter"])
    assert {*captioner.vocabulary.words} == {*words}
    assert {line["caption"] for line in captions_of(folder)} == {"học sinh đi xe đạp"}
    scores = read_json(folder / "scores.json")["scores"]
    assert scores["BLEU-3"] == pytest.approx(100, abs=1e-3)
    assert scores["BLEU-4"] < 5  # of three words, where blanks would make five
    assert scores["length"] == 3
    assert {record.words for record in read(folder / FILE)} == {tuple(words)}
    # the pages mark the same words
    called(report.main, "runs=runs", "output=report", "modules=[segmenter]", "metrics=[BLEU]")
    file = folder / "captions.jsonl"
    pair = f"files=[{file},{file}]", "output=pair", "metrics=[BLEU]"
    called(compare.main, *pair, "modules=[segmenter]")
    for page in ("report", "pair"):
        html = Path(page, "index.html").read_text()
        shown = re.findall(r'"words": (\[.*?\])', html)
        assert shown
        assert all(json.loads(each) == words for each in shown), page
