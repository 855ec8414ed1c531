"""Signatures of scores: what a number depends on besides the captions.

The form is that of sacreBLEU (Post, "A Call for Clarity in Reporting BLEU Scores", WMT 2018):
`CIDEr|refs:5|lang:en|tok:PTB|variant:CIDEr-D|df:1000|pycocoevalcap:1.2`.
"""

from collections.abc import Iterable, Mapping, Sequence

from captioning.data.words import ENGLISH
from captioning.metrics.meteor import MATCHING

OWN: Mapping[str, Mapping[str, str]] = {
    "BLEU": {"length": "closest"},
    "METEOR": {"jar": "1.5"},
    "ROUGE-L": {"beta": "1.2"},
    "CIDEr": {"variant": "CIDEr-D"},
    "SPICE": {"jar": "1.0"},
}
"""The choices of each metric of `pycocoevalcap` that other tools make otherwise."""


def sign(metric: str, fields: Mapping[str, object]) -> str:
    """Join the name of a metric and the fields that have a value."""
    return "|".join(
        [metric, *(f"{name}:{value}" for name, value in fields.items() if value not in (None, ""))]
    )


def signatures(
    metrics: Iterable[str],
    references: Sequence[Sequence[str]],
    version: str | None,
    language: str = ENGLISH,
    tokens: str = "PTB",
    unproved: str = "",
) -> dict[str, str]:
    """Sign each metric, of which those of the user have no version.

    Args:
        metrics: names, without repeats.
        references: of each scored image; CIDEr's document frequencies are theirs.
        version: that of `pycocoevalcap`, None where it is unknown.
        language: code of the captions' language.
        tokens: what splits captions into words for the metrics.
        unproved: how many texts may have other tokens than those of Java, for want of it.
    """
    counts = sorted({len(texts) for texts in references})
    shared = {
        "refs": "-".join(map(str, counts[:: max(1, len(counts) - 1)])),
        "lang": language,
        "tok": tokens,
    }
    shared |= {"unproved": unproved} if unproved else {}
    found = {}
    for metric in metrics:
        own: dict[str, object] = {**shared, **OWN.get(metric, {})}
        own |= {"df": len(references)} if metric == "CIDEr" else {}
        if metric == "METEOR" and language != ENGLISH:  # in English all that there are
            own["match"] = "+".join(MATCHING[language].weights)
        found[metric] = sign(metric, own | ({"pycocoevalcap": version} if metric in OWN else {}))
    return found
