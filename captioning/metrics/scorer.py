"""BLEU, METEOR, ROUGE-L, CIDEr and SPICE of generated captions, equal to what pycocoevalcap gives.

B is the number of scored images. Sources: BLEU, Papineni et al., ACL 2002; METEOR, Denkowski and Lavie, WMT 2014;
ROUGE-L, Lin, 2004; CIDEr (here, as in pycocoevalcap, CIDEr-D), Vedantam et al., CVPR 2015; the pipeline (PTB tokens,
closest reference length), Chen et al., "Microsoft COCO Captions", 2015; SPICE, see `captioning.metrics.spice`.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Literal, get_args

import numpy as np
from annotated_types import MinLen
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider_scorer import CiderScorer
from pycocoevalcap.rouge.rouge import Rouge

from captioning.config.types import Seconds, bounded
from captioning.errors import CaptioningError
from captioning.metrics.java import find_java
from captioning.metrics.meteor import Meteor
from captioning.metrics.ptb import ptb_tokenize
from captioning.metrics.spice import Spice
from captioning.metrics.statistics import (
    BLEU_NAMES,
    NO_PENALTY,
    PERCENT,
    Statistics,
    bleu_statistics,
    mean_statistics,
    meteor_statistics,
)

Metric = Literal["BLEU", "METEOR", "ROUGE-L", "CIDEr", "SPICE"]
Metrics = Annotated[Sequence[Metric], MinLen(1)]
METRICS: tuple[Metric, ...] = get_args(Metric)
DOWNLOADED: frozenset[Metric] = frozenset({"SPICE"})
"""Metrics that need a large download, and SPICE an old Java: computed where they are asked for alone."""
DEFAULT_METRICS = tuple(name for name in METRICS if name not in DOWNLOADED)


@dataclass(frozen=True)
class Scores:
    """The scores of a set of captions on the scale that papers print: times 100 (so CIDEr can pass 100).

    `corpus` maps `BLEU-1`..`BLEU-4`, each also with ` (no brevity penalty)`, `METEOR`, `ROUGE-L` and `CIDEr` to the
    score of all B captions; `per_image` has B such dictionaries, in the ascending order of the images' positions, but
    no entries without brevity penalty; `statistics` has what the scores of any choice of these images are computed
    from, one entry per metric. Only the chosen metrics are there.
    """

    corpus: dict[str, float]
    per_image: list[dict[str, float]]
    statistics: tuple[Statistics, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class _Table:
    """One metric, 0-1: by name the score of the corpus and the images' scores."""

    corpus: dict[str, float]
    per_image: dict[str, list[float]]
    statistics: Statistics


def bleu(references: Sequence[Sequence[str]], candidates: Sequence[str]) -> _Table:
    """BLEU-1 to BLEU-4 of tokenised captions, 0-1, for the corpus with and without brevity penalty."""
    scorer = BleuScorer(n=len(BLEU_NAMES))
    for captions, candidate in zip(references, candidates, strict=True):
        scorer += (candidate, captions)
    corpus, per_image = scorer.compute_score(option="closest")
    # Against references of length zero no candidate is too short, so the same n-gram counts go without a penalty. Only
    # a corpus of empty candidates still has one, which makes it the 0 that it should be.
    scorer.special_reflen = 0
    without_penalty, _ = scorer.recompute_score(option="closest")
    return _Table(
        dict(zip(BLEU_NAMES, corpus, strict=True))
        | {name + NO_PENALTY: score for name, score in zip(BLEU_NAMES, without_penalty, strict=True)},
        dict(zip(BLEU_NAMES, per_image, strict=True)),
        bleu_statistics(scorer),
    )


def meteor(process: Meteor, references: Sequence[Sequence[str]], candidates: Sequence[str]) -> _Table:
    """METEOR of tokenised captions, 0-1."""
    matches = process.match(references, candidates)
    corpus, per_image = process.evaluate(matches)
    return _Table({"METEOR": corpus}, {"METEOR": per_image}, meteor_statistics(matches))


def rouge_l(references: Sequence[Sequence[str]], candidates: Sequence[str]) -> _Table:
    """ROUGE-L of tokenised captions, 0-1."""
    rouge = Rouge()
    per_image = [
        rouge.calc_score([candidate], captions) for captions, candidate in zip(references, candidates, strict=True)
    ]
    return _mean("ROUGE-L", per_image)


def cider(references: Sequence[Sequence[str]], candidates: Sequence[str]) -> _Table:
    """CIDEr-D of tokenised captions, 0-10, with the document frequencies of these references (one image gives 0)."""
    scorer = CiderScorer()
    for captions, candidate in zip(references, candidates, strict=True):
        scorer += (candidate, captions)
    # CiderScorer.compute_score is these two steps and a check that fails where no reference has a word.
    scorer.compute_doc_freq()
    return _mean("CIDEr", scorer.compute_cider())


def _mean(name: str, per_image: Sequence[float]) -> _Table:
    return _Table({name: float(np.mean(per_image))}, {name: list(per_image)}, mean_statistics(name, per_image))


class Scorer:
    """Scores captions against the references of a data set.

    Looks for Java when constructed; starts it only to score. The references are tokenised once, at the first score.
    With SPICE, what that needs is downloaded when constructed.

    Args:
        references: for each image of the data set its references as they are, at least one.
        metrics: some of `METRICS`.
        timeout: seconds of silence after which a Java process is taken for stuck.

    Raises:
        CaptioningError: an unknown metric or none, an image without references, or no Java; SPICE's needs not met.
    """

    @bounded
    def __init__(
        self, references: Sequence[Sequence[str]], metrics: Metrics = DEFAULT_METRICS, timeout: Seconds = 60.0
    ) -> None:
        bare = [position for position, captions in enumerate(references) if not captions]
        if bare:
            raise CaptioningError(
                f"{len(bare)} of {len(references)} images have no reference caption, the first at position {bare[0]}: "
                "give each at least one, or leave it out"
            )
        find_java()
        self.references = references
        self.metrics = tuple(name for name in METRICS if name in metrics)
        self.timeout = timeout
        self._spice = Spice(timeout) if "SPICE" in metrics else None

    @cached_property
    def tokenized_references(self) -> list[list[str]]:
        """The references after `ptb_tokenize`, grouped by image as they were given."""
        tokenized = iter(ptb_tokenize([text for captions in self.references for text in captions], self.timeout))
        return [[next(tokenized) for _ in captions] for captions in self.references]

    def score(self, candidates: Mapping[int, str]) -> Scores:
        """Scores one caption for each of B images, which may be a part of the data set.

        Args:
            candidates: position in `references` -> caption, not tokenised.

        Raises:
            CaptioningError: there is no candidate, or one for a position that is not there; a Java process died or fell
                silent.
        """
        positions = sorted(candidates)
        if not positions:
            raise CaptioningError("there are no captions to score: at least one is needed")
        if positions[0] < 0 or positions[-1] >= len(self.references):
            raise CaptioningError(
                f"captions came for the positions {positions[0]} to {positions[-1]}, and there are references for 0 to "
                f"{len(self.references) - 1} only: score with the references of the same data set"
            )
        with ExitStack() as processes:
            # METEOR is started first, because it loads its tables while the rest is computed.
            process = processes.enter_context(Meteor(self.timeout)) if "METEOR" in self.metrics else None
            references = [self.tokenized_references[position] for position in positions]
            captions = ptb_tokenize([candidates[position] for position in positions], self.timeout)
            tables: dict[str, _Table] = {}
            for name, metric in (("BLEU", bleu), ("ROUGE-L", rouge_l), ("CIDEr", cider)):
                if name in self.metrics:
                    tables[name] = metric(references, captions)
            if process is not None:
                tables["METEOR"] = meteor(process, references, captions)
        if self._spice is not None:
            tables["SPICE"] = _mean("SPICE", self._spice.score(references, captions))
        corpus: dict[str, float] = {}
        per_image: list[dict[str, float]] = [{} for _ in positions]
        for metric_name in self.metrics:
            table = tables[metric_name]
            corpus |= {name: PERCENT * score for name, score in table.corpus.items()}
            for name, scores in table.per_image.items():
                for entry, score in zip(per_image, scores, strict=True):
                    entry[name] = PERCENT * float(score)
        return Scores(corpus, per_image, tuple(tables[name].statistics for name in self.metrics))
