"""Two systems by their captions of the same images, with references and scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import isclose, isfinite, nan
from pathlib import Path
from statistics import fmean
from typing import Any

from captioning.config.types import Config, given_path
from captioning.data.readers.captions import (
    CaptionRecord,
    add_references,
    read_captions,
    read_references,
)
from captioning.data.readers.groups import choose_groups
from captioning.data.readers.ids import common_images, match_ids
from captioning.data.readers.options import reading
from captioning.data.readers.parsing import ImageId
from captioning.data.words import Language
from captioning.errors import CaptioningError, did_you_mean, one_line, quoted
from captioning.metrics import SCORES, ScoredImage, Scorer, score_called
from captioning.metrics.contrasts import Difference, Measured, compare, corrected, measure
from captioning.metrics.statistics import PERCENT, Statistics, mean_statistics
from captioning.metrics.table import HEADLINE, scores_of
from captioning.report.comparison import with_means
from captioning.report.runs import Provenance, TestRecord, find_runs, read_record
from captioning.report.systems import group, newest
from captioning.runs.evaluation.captions import FILE, RECORDED, add_scores, captions_file
from captioning.runs.folders.record import completed_settings
from captioning.runs.settings import differing, each_setting, read_settings

LENGTH = "length"


@dataclass
class Side:
    """A system by its file of captions; of a run with what it has recorded."""

    label: str  # its name
    file: Path
    records: Mapping[ImageId, CaptionRecord]
    config: Config = field(default_factory=dict)
    scored: TestRecord = field(
        default_factory=lambda: TestRecord(scores={}, provenance=Provenance())
    )

    @property
    def recorded(self) -> Config:
        """All settings, by key."""
        return dict(each_setting(self.config))

    @property
    def references(self) -> dict[ImageId, list[str]]:
        return {image: record.references for image, record in self.records.items()}


def read_side(given: object, own_references: bool) -> Side:
    """Read the folder of a run or a record, its file of captions, or another one; the file of
    references that a recorded experiment names, only with `own_references`.
    """
    path = given_path(given)
    file = captions_file(path) if path.is_dir() else path
    side = Side(one_line(file.stem), file, read_captions(file))
    if file.name not in (FILE, RECORDED):
        return side
    side.label = one_line(file.absolute().parent.name)
    if own_references:
        add_references(list(side.records.values()), file.parent)
    if (config := file.with_name("config.yaml")).is_file():
        side.config = read_settings(config)
    if (scores := file.with_name("scores.json")).is_file():
        side.scored = read_record(scores)
    return side


class Pair:
    """The images of two files of captions, by the settings of the command.

    They are the same unless `common_only`, with references if `metrics` score them.

    Their `language` and `tokens` are those of the first run, or English words, where none are
    given.
    """

    def __init__(self, config: Any):
        self.config = config
        self.sides = [read_side(file, config.references is None) for file in config.files]
        first, second = self.sides
        second.records = match_ids(second.records, first.records)
        keys = "language", "tokens"
        chosen = {key: getattr(config, key) or first.recorded.get(f"data.{key}") for key in keys}
        self.language = Language.of(chosen, config.modules)
        for side in self.sides:
            if side.scored.provenance.references:  # a record leaves out scores of single captions
                records, scores = side.records.values(), side.scored.scores
                add_scores(records, scores, self.language, config.cache)
        if first.label == second.label:
            for side in self.sides:
                side.label = one_line(str(side.file))
        known = self._known_references()
        files_of = {str(side.file): side.records for side in self.sides}
        images = common_images(known, files_of, config.common_only)
        self.references = {image: known[image] for image in images}
        self.records = [[side.records[image] for image in images] for side in self.sides]
        own = [ours.group or theirs.group for ours, theirs in zip(*self.records, strict=True)]
        self.groups = choose_groups(own, self.references.values(), config.groups, self.language)
        self.words = [
            [self.language.split(record.caption) for record in records] for records in self.records
        ]
        self.names: list[str] = []  # scores that single captions of both sides have
        self.signatures: dict[str, str] = {}

    def _known_references(self) -> dict[ImageId, list[str]]:
        """The references of the images, at least one of each where metrics score them."""
        file = self.config.references
        known = self._own_references() if file is None else self._references(file)
        if self.config.metrics:
            known = {image: texts for image, texts in known.items() if texts}
        if not known:
            raise CaptioningError(
                "there are no references to score the captions with: name their file, "
                "references=FILE, or compare without, metrics=[]"
            )
        return known

    @property
    def differing_settings(self) -> dict[str, tuple[str, str]]:
        """The settings in which two runs differ, by both values as text.

        One that a run was recorded without has its default, or is null.
        """
        if not all(side.config for side in self.sides):
            return {}
        texts = []
        for side, other in zip(self.sides, self.sides[::-1], strict=True):
            settings = completed_settings(side.config, other.recorded, self.config.modules)
            texts.append({key: quoted(value) for key, value in settings.items()})
        ours, theirs = texts
        return differing(ours, theirs, quoted(None))

    def _references(self, file: str) -> dict[ImageId, list[str]]:
        """Those of a file, which may also name the photographs."""
        with reading(groups=self.config.groups):
            known = read_references(given_path(file), bare=True, captions=self.sides[0].records)
        for side in self.sides:
            side.records = match_ids(side.records, known)
            for record in side.records.values():
                image = known.get(record.image_id)
                if image:
                    record.photograph = record.photograph or image.photograph
                    record.group = image.group or record.group
        named = {*chain(*(side.records for side in self.sides))}
        return {image: known[image].references for image in known if image in named}

    def _own_references(self) -> dict[ImageId, list[str]]:
        """Those of the files of captions, which must be the same."""
        one, other = (side.references for side in self.sides)
        if not any(other.values()):
            return one
        if not any(one.values()):
            return other
        if any(other.get(image, texts) != texts for image, texts in one.items()):
            names = " and ".join(str(side.file) for side in self.sides)
            raise CaptioningError(
                f"{names} have different references of the same images: name those to score both "
                "with, references=FILE"
            )
        return one

    def compare(self) -> dict[str, Difference]:
        """Score all captions and compare the sides.

        Records get the scores of `metrics`, the length, and what both files hold if it was
        computed alike: of the same images with the same references, by metrics of the same
        signatures. In `names` the setting `score` is first.
        """
        metrics, first = self.config.metrics, self.config.score
        self._keep_comparable_scores()
        held = [name for record in chain(*self.records) for name in record.scores]
        known = [HEADLINE, *SCORES, *scores_of(metrics, self.language.code), *held]
        if first not in (None, *known):
            raise CaptioningError(f"there is no score={first}.{did_you_mean(first, known)}")
        scorer, computed = None, list[Sequence[Statistics]]([[], []])
        if metrics:
            images = [ScoredImage(image) for image in self.references]
            texts = list(self.references.values())
            scorer = Scorer(texts, metrics, self.config.timeout, self.language, images)
            computed = self._score(scorer)
        ours, theirs = (set(chain(*(r.scores for r in records))) for records in self.records)
        known += sorted(ours & theirs)  # of a metric that does not describe its scores
        self.names = sorted(ours & theirs, key=lambda name: (name != first, known.index(name)))
        if first not in (None, self.names[0]):
            raise CaptioningError(f"score={first}: single captions have {', '.join(self.names)}")
        means = [name for name in self.names if self._is_mean(name)]
        systems = []
        for statistics, records in zip(computed, self.records, strict=True):
            systems.append(measure(with_means([statistics], [records], means), self.groups))
        one, other = systems
        return corrected(compare(one, other, systems + self._lenders(scorer)))

    def _keep_comparable_scores(self) -> None:
        """Leave records the scores that both files have computed alike, and the lengths."""
        one, other = self.sides
        ours, theirs = (side.scored.provenance.signatures for side in self.sides)
        alike = one.references == other.references and all(
            theirs.get(metric, signature) == signature for metric, signature in ours.items()
        )
        self.signatures = dict(ours) if alike else {}
        for records, words in zip(self.records, self.words, strict=True):
            for record, split in zip(records, words, strict=True):
                held = record.scores.items() if alike else ()
                record.scores = {name: score for name, score in held if score is not None}
                record.scores[LENGTH] = float(len(split))

    def _is_mean(self, name: str) -> bool:
        """Whether a score is a mean over images, by its kind or by both sides' records."""
        if name == LENGTH or score_called(name).mean:
            return True
        for side in self.sides:
            mean = fmean(record.scores.get(name) or 0.0 for record in side.records.values())
            if not isclose(side.scored.scores.get(name) or nan, mean):
                return False
        return True

    def _lenders(self, scorer: Scorer | None) -> list[dict[str, Measured]]:
        """The systems below `sweep` with several runs, by their captions of the same images."""
        if self.config.sweep is None:
            return []
        folder = given_path(self.config.sweep)
        runs, _ = newest(find_runs(folder)[0] if folder.is_dir() else [])
        lenders = []
        for system in group(runs):
            every = [{record.image_id: record for record in run.captions} for run in system.runs]
            if len(every) < 2 or any(self.references.keys() - run.keys() for run in every):
                continue
            measured = []
            for run in every:
                captions = [run[image].captions for image in self.references]
                lengths = [len(self.language.split(texts[0])) / PERCENT for texts in captions]
                scored = scorer.score(dict(enumerate(captions))).statistics if scorer else ()
                measured.append([*scored, mean_statistics({LENGTH: lengths})])
            lenders.append(measure(measured, self.groups))
        if not lenders:
            raise CaptioningError(
                f"no system below sweep={self.config.sweep} has two runs that were tested on the "
                "images of the comparison: name the folder of a sweep over seeds on the same data"
            )
        return lenders

    def _score(self, scorer: Scorer) -> list[Sequence[Statistics]]:
        computed_again: list[Sequence[Statistics]] = []
        for records in self.records:
            scores = scorer.score(dict(enumerate(record.captions for record in records)))
            for row, record in enumerate(records):
                computed = scores.per_image[row].items()
                record.scores |= {name: score for name, score in computed if isfinite(score)}
                if scores.hallucinated:
                    record.hallucinated = list(scores.hallucinated[row] or ())
            computed_again.append(scores.statistics)
        self.signatures |= scorer.signatures
        return computed_again
