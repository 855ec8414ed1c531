"""sacreBLEU in the table of scores, against the tool itself."""

import sys
from itertools import zip_longest

import numpy as np
import pytest

from captioning.metrics import Scorer

sacrebleu = pytest.importorskip("sacrebleu")
REFERENCES = [["a red dog , running .", "the dog runs ."], ["Two cats sleep on a sofa ."], ["rain"]]
CAPTIONS = ["a red dog runs .", "two cats sleep on the sofa .", "snow"]


def tool(choice: list[int]) -> float:
    streams = list(zip_longest(*(REFERENCES[i] for i in choice)))
    return sacrebleu.corpus_bleu(
        [CAPTIONS[i] for i in choice], streams, lowercase=True, tokenize="none", force=True
    ).score


def test_it_is_the_tools_own_and_signed_by_it() -> None:
    scorer = Scorer(REFERENCES, ["sacreBLEU"])
    scores = scorer.score(dict(enumerate(CAPTIONS)))
    assert scores.corpus == {"sacreBLEU": pytest.approx(tool([0, 1, 2]), abs=1e-12)}
    assert scorer.signatures == {
        "sacreBLEU": "sacreBLEU|nrefs:var|case:lc|eff:no|tok:none|smooth:exp|"
        f"version:{sacrebleu.__version__}"
    }
    sentences = [
        sacrebleu.sentence_bleu(*pair, lowercase=True, tokenize="none").score
        for pair in zip(CAPTIONS, REFERENCES, strict=True)
    ]
    assert [each["sacreBLEU"] for each in scores.per_image] == pytest.approx(sentences)


@pytest.mark.parametrize("choice", [[0, 1, 2], [1, 1, 0], [2], [0, 2, 2]])
def test_resampled_from_sums(choice: list[int]) -> None:
    (statistics,) = Scorer(REFERENCES, ["sacreBLEU"]).score(dict(enumerate(CAPTIONS))).statistics
    counts = np.bincount(choice, minlength=3).astype(float)[None]
    assert statistics.scores(counts)[0] == pytest.approx([tool(choice)])


def test_without_the_tool_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(ImportError, match=r"captioning\[translation\]"):
        Scorer(REFERENCES, ["sacreBLEU"])
