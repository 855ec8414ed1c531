"""A run on Chinese captions, from the data to the scores of its checkpoint."""

from pathlib import Path

import pytest
from json_files import read_json
from support import QUIET, called, captions_of, composed, make_photographs, miniature

import captioning
from captioning import evaluate, run

pytestmark = QUIET
CHINESE = [
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
    called(evaluate.main, f"checkpoint={checkpoint}", "device=cpu")
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
