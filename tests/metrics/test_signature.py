"""What scores depend on, in one line for each metric."""

from importlib.metadata import version

from captioning.data.words import Language
from captioning.metrics import Scorer
from captioning.metrics.signature import signatures

REFERENCES = [["a dog"], ["a cat", "the cat"], ["a cow"] * 5]


def test_what_scores_depend_on():
    signed = signatures(["CIDEr", "ROUGE-L", "my.F1"], REFERENCES, "1.2", "zh", "characters")
    assert signed == {
        "CIDEr": "CIDEr|refs:1-5|lang:zh|tok:characters|variant:CIDEr-D|df:3|pycocoevalcap:1.2",
        "ROUGE-L": "ROUGE-L|refs:1-5|lang:zh|tok:characters|beta:1.2|pycocoevalcap:1.2",
        "my.F1": "my.F1|refs:1-5|lang:zh|tok:characters",
    }
    assert signatures(["BLEU"], REFERENCES[1:2], None) == {
        "BLEU": "BLEU|refs:2|lang:en|tok:PTB|length:closest"
    }


def test_a_scorer_signs_its_metrics():
    signed = Scorer(REFERENCES, metrics=["METEOR", "BLEU"]).signatures
    assert signed.keys() == {"METEOR", "BLEU"}
    assert signed["METEOR"].endswith(f"|tok:PTB|jar:1.5|pycocoevalcap:{version('pycocoevalcap')}")
    german = Scorer(REFERENCES, metrics=["METEOR"], language=Language("de")).signatures["METEOR"]
    assert "|lang:de|tok:words|jar:1.5|match:exact+stem|" in german
