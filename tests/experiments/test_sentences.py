"""Parallel text, sacreBLEU, and digests that sources change and nothing else does."""

import sys
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import pytest
from metrics.scored import counts
from refusals import refuses

from captioning.config.explain import explain
from captioning.data.columns import data_digest
from captioning.data.example import Example, Reference
from captioning.metrics import Scorer
from experiments.two_languages.sentences import ParallelReader

BEFORE = "43432136aca32b9dff7ab976acec30dadbdf8694cce077b18526b993c65bef21"


def reader(folder):
    return ParallelReader(folder, "de", "en", {"train": "t.tok", "val": "v", "test": "v"})


def test_lines_belong_together_by_their_numbers(tmp_path):
    for name in ("t.tok", "v"):
        (tmp_path / f"{name}.de").write_text("\ufeffein hund .\n\nzwei\u2028hunde\n")
        (tmp_path / f"{name}.en").write_text("a dog .\r\n \r\ntwo  dogs")
    found = reader(tmp_path)()
    path = tmp_path / "t.tok.de"
    assert found["train"] == [
        Example(1, path, (Reference("a dog .", ("a", "dog", ".")),), source=("ein", "hund", ".")),
        Example(3, path, (Reference("two dogs", ("two", "dogs")),), source=("zwei", "hunde")),
    ]
    (tmp_path / "v.en").write_text("a dog .\ntwo dogs")
    with refuses(r"line 2 .*v\.de and .*v\.en"):
        reader(tmp_path)()
    (tmp_path / "v.en").write_bytes(b"caf\xe9")
    with pytest.raises(UnicodeDecodeError) as refusal:
        reader(tmp_path)()
    assert "v.en" in explain(refusal.value)


def test_the_digest_is_that_of_earlier_versions_unless_there_are_sources():
    example = Example(7, Path("a/7.jpg"), (Reference("A dog.", ("a", "dog")),))
    assert data_digest({"train": [example]}) == BEFORE
    assert data_digest({"train": [replace(example, source=("x",))]}) != data_digest(
        {"train": [example]}
    )


SACREBLEU = "experiments.two_languages.sentences.SacreBleu"
TRANSLATED = [["a red dog , running .", "the dog runs ."], ["Two cats sleep on a sofa ."], ["rain"]]
CAPTIONS = ["a red dog runs .", "two cats sleep on the sofa .", "snow"]


def test_sacrebleu_is_the_tools_own():
    sacrebleu = pytest.importorskip("sacrebleu")
    settings = {"lowercase": True, "tokenize": "none"}
    scorer = Scorer(TRANSLATED, [SACREBLEU])
    scores = scorer.score(dict(enumerate(CAPTIONS)))
    signature = "sacreBLEU|nrefs:var|case:lc|eff:no|tok:none|smooth:exp|version"
    assert scorer.signatures["sacreBLEU"].rpartition(":")[0] == signature
    for choice in ([0, 1, 2], [1, 1, 0], [2], [0, 2, 2]):
        streams = list(zip_longest(*(TRANSLATED[i] for i in choice)))
        chosen = [CAPTIONS[i] for i in choice]
        score = sacrebleu.corpus_bleu(chosen, streams, force=True, **settings).score
        assert scores.statistics[0].scores(counts(choice, 3))[0] == pytest.approx([score])
    pairs = zip(CAPTIONS, TRANSLATED, strict=True)
    sentences = [sacrebleu.sentence_bleu(*pair, **settings).score for pair in pairs]
    assert [image["sacreBLEU"] for image in scores.per_image] == pytest.approx(sentences)


def test_without_sacrebleu_it_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with refuses(r"captioning\[translation\]"):
        Scorer(TRANSLATED, [SACREBLEU])
