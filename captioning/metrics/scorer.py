"""The scorer of generated captions, in English equal to pycocoevalcap."""

import copy
import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from captioning.data.words import ENGLISH, ENGLISH_WORDS, Language
from captioning.errors import CaptioningError, one_line, quoted
from captioning.metrics.cider import Cider
from captioning.metrics.java import has_java, ptb_tokenize
from captioning.metrics.metric import SHUFFLED, Metric, ScoredImage, Texts, format_signature
from captioning.metrics.ngrams import Bleu
from captioning.metrics.ptb import is_proved, tokens
from captioning.metrics.statistics import PERCENT, MetricResult, Statistics, group_label
from captioning.metrics.table import DEFAULT_METRICS, SCORES, build_metrics

PTB = "PTB"
BLANK = "\u2423"  # within a word, in tokens that are separated by blanks

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scores:
    """Scores of B captions, times 100 as papers print them (so CIDEr can pass 100)."""

    corpus: dict[str, float]
    per_image: list[dict[str, float]]  # B, in the ascending order of the images' positions
    # Statistics of each metric by which systems can be compared.
    statistics: tuple[Statistics, ...] = field(default=(), compare=False, repr=False)
    # B lists of objects that are not there, if that is known
    hallucinated: Sequence[Sequence[str]] = ()

    def by_group(self, groups: Sequence[str]) -> dict[str, dict[str, float]]:
        """The number of images of each group and its scores, by its label.

        Args:
            groups: that of each image, B of them; empty for none.
        """
        found: dict[str, dict[str, float]] = {}
        for name in sorted({*groups} - {""}):
            members = np.array([[group == name for group in groups]], float)
            label = group_label(name, groups.count(name))
            found[label] = {"images": groups.count(name)}
            for metric in self.statistics:
                found[label] |= zip(metric.names, metric.scores(members)[0].tolist(), strict=True)
        return found


class Scorer:
    """Score captions against references, which are tokenised once, at the first score.

    Args:
        references: for each image of the data set its references as they are, at least one.
        metrics: names of `METRICS`, classes of the user's by their paths, such as `my.WordF1`, or
            metrics as they are.
        timeout: seconds that a Java program may be silent.
        language: of the captions; named metrics that are not made for it are left out.
        images: of the data set, for metrics that need them.
    """

    def __init__(
        self,
        references: Texts,
        metrics: Sequence[str | Metric] = DEFAULT_METRICS,
        timeout: float = 60.0,
        language: Language = ENGLISH_WORDS,
        images: Sequence[ScoredImage] | None = None,
    ):
        self.references = references
        self.timeout = timeout
        self.language = language
        self.images = images
        self.metrics = build_metrics(metrics, language.code, timeout)
        self.failed: set[str] = set()  # the metrics without scores of the last captions
        self._texts, self._unproved = 0, 0  # tokenised; of these, those that Java should have had

    @property
    def signatures(self) -> dict[str, str]:
        """The signature of each metric that has not failed, by its name."""
        counts = sorted({len(texts) for texts in self.references})
        shared = {
            "refs": "-".join(map(str, counts[:: max(1, len(counts) - 1)])),
            "lang": self.language.code,
            "tok": self.tokenizer,
            "unproved": f"{self._unproved} of {self._texts} texts" if self._unproved else "",
        }
        return {
            metric.name: format_signature(
                metric.name,
                {**(shared if metric.tokenized else {}), **metric.signature(self.references)},
            )
            for metric in self.metrics
            if metric.name not in self.failed
        }

    @property
    def tokenizer(self) -> str:
        """The tokenizer of the metrics."""
        return PTB if self.language.code == ENGLISH else self.language.tokens

    @cached_property
    def tokenized_references(self) -> list[list[str]]:
        """The references after tokenisation, grouped by image as they were given."""
        return self._tokenized_groups(self.references)

    def _tokenized_groups(self, groups: Texts) -> list[list[str]]:
        tokenized = iter(self.tokenized([text for texts in groups for text in texts]))
        return [[next(tokenized) for _ in texts] for texts in groups]

    def tokenized(self, texts: Sequence[str]) -> list[str]:
        """Texts as metrics read them, one space between tokens: those of PTB in English, else the
        words of the data.
        """
        if self.tokenizer != PTB:
            split = map(self.language.split, texts)
            return [" ".join(word.replace(" ", BLANK) for word in words) for words in split]
        unproved = sum(not is_proved(text) for text in texts)
        if unproved and has_java():
            try:
                # all of them, because what it makes of a text may depend on its neighbours
                return ptb_tokenize(texts, self.timeout)
            except Exception as error:
                log.warning("%s; these texts are tokenised as without Java", _cause(error))
        self._texts += len(texts)
        self._unproved += unproved
        return [tokens(text) for text in texts]

    def start(self) -> None:
        """Start what metrics need, such as METEOR's tables, while captions are generated."""
        for metric in self.metrics:
            with suppress(Exception):  # `score` tries again and says why it fails
                metric.start()

    def score(self, captions: Mapping[int, str | Sequence[str]]) -> Scores:
        """Score captions, one or several of an image.

        The key is the image's position in the references, which may have more images.

        A metric that fails has NaN for its scores and a line in the log; others are unharmed.
        """
        self.start()
        positions = sorted(captions)
        results = self._compute(positions, captions)
        corpus: dict[str, float] = {}
        per_image: list[dict[str, float]] = [{} for _ in positions]
        for result in results:
            corpus |= {name: PERCENT * score for name, score in result.corpus.items()}
            for name, scores in result.per_image.items():
                for row, score in zip(per_image, scores, strict=True):
                    row[name] = PERCENT * float(score)
        statistics = tuple(r.statistics for r in results if r.statistics)
        hallucinated = next((r.hallucinated for r in results if r.hallucinated), ())
        return Scores(corpus, per_image, statistics, hallucinated)

    def _compute(
        self, positions: Sequence[int], captions: Mapping[int, str | Sequence[str]]
    ) -> list[MetricResult]:
        """What each metric makes of the captions, as written or tokenised."""
        groups = []
        for position in positions:
            given = captions[position]
            groups.append([given] if isinstance(given, str) else given)
        images = self.images and [self.images[position] for position in positions]
        texts: dict[bool, tuple[Texts, Texts]] = {
            False: (groups, [self.references[position] for position in positions])
        }
        if any(metric.tokenized for metric in self.metrics):
            known = [self.tokenized_references[position] for position in positions]
            texts[True] = self._tokenized_groups(groups), known
        earlier, self.failed = self.failed, set()
        results = []
        for metric in self.metrics:
            try:
                metric.start()
                results.append(metric.compute(*texts[metric.tokenized], images))
            except Exception as error:  # a user's code may raise anything
                if metric.name not in earlier:  # of two systems, or at each validation
                    log.warning("no %s: %s", metric.name, _cause(error))
                self.failed.add(metric.name)
                names = [score.name for score in metric.scores] or [metric.name]
                results.append(MetricResult(dict.fromkeys(names, math.nan), {}))
        return results

    def chance(self, captions: Mapping[int, Sequence[str]]) -> dict[str, float]:
        """BLEU-4 and CIDEr of captions that are each given to the next image, without Java: what a
        captioner earns that knows the data set and not the image. Empty for one image.
        """
        if len(captions) < 2:
            return {}
        positions = sorted(captions)
        others = [*positions[1:], positions[0]]
        shuffled = {one: captions[other] for one, other in zip(positions, others, strict=True)}
        scorer = copy.copy(self)
        scorer.metrics = [metric for metric in self.metrics if isinstance(metric, Bleu | Cider)]
        scores = {f"{name}{SHUFFLED}": x for name, x in scorer.score(shuffled).corpus.items()}
        return {name: x for name, x in scores.items() if name in SCORES and math.isfinite(x)}


def _cause(error: Exception) -> str:
    if isinstance(error, CaptioningError):
        return one_line(str(error))
    return f"{type(error).__name__}: {quoted(error)}"
