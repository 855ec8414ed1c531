"""Two systems by their captions of the same images, with references and scores.

B images that both have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any, Self

from pydantic import Field, PrivateAttr

from captioning.config.settings import raise_first
from captioning.data.readers.captions import (
    common_images,
    read_entries,
    read_photographs,
    read_references,
)
from captioning.data.readers.objects import read_objects
from captioning.data.readers.reading import ImageId, Text, by_image
from captioning.data.readers.skipping import at
from captioning.data.words import ENGLISH, Language
from captioning.download.named import given_path
from captioning.errors import CaptioningError, did_you_mean, one_line, quoted
from captioning.metrics import SCORES, Metric, ScoredImage, Scorer, score_called
from captioning.metrics.hallucination import ENGLISH_OBJECTS, Chair
from captioning.metrics.statistics import PERCENT, Statistics, mean_statistics
from captioning.metrics.table import HEADLINE, scores_of
from captioning.report.runs import read_record
from captioning.runs.captions import CaptionRecord, add_references, add_scores
from captioning.runs.settings import each_setting, read_settings, result_settings

LENGTH = "length"
CAPTIONS = "captions.jsonl"


class Line(CaptionRecord):
    """The caption of an image; COCO's results have its first two fields alone."""

    image_id: ImageId
    caption: Text
    references: list[Text] = Field(default_factory=list)
    _words: tuple[str, ...] = PrivateAttr(())

    @property
    def words(self) -> tuple[str, ...]:
        """Those that `count` has split."""
        return self._words

    def count(self, language: Language) -> None:
        """Split the caption into words, once."""
        self._words = language.split(self.caption)


@dataclass(frozen=True)
class Side:
    """A system by its file of captions."""

    short: str  # its name
    file: Path
    lines: Mapping[ImageId, Line]
    signatures: Mapping[str, str]  # of the metrics in the file, where they are recorded
    root: Any  # folder of the photographs, where it is recorded
    data: Mapping[str, Any]  # settings of the run's data, where they are recorded
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the run that change its result
    scores: Sequence[
        str
    ] = ()  # of the whole split, in a recorded experiment, whose lines do not have them

    @classmethod
    def read(cls, given: object, own_references: bool = True) -> Self:
        """Read a run folder, its `captions.jsonl`, or a file of COCO's results.

        Without `own_references` a recorded experiment's file of references is not looked for.
        """
        path = given_path(given)
        file = path / CAPTIONS if path.is_dir() else path
        entries = read_entries(file, Line)
        with at(file):
            lines = by_image((line.image_id, line) for line in entries)
        if file.name != CAPTIONS:
            return cls(one_line(file.stem), file, lines, {}, None, {})
        record, config = file.with_name("scores.json"), file.with_name("config.yaml")
        found = read_record(record) if record.is_file() else None
        if own_references:
            add_references(entries, file.parent)
        recorded = read_settings(config) if config.is_file() else {}
        settings = dict(each_setting(recorded))
        data = {name: settings.get(f"data.{name}") for name in ("language", "tokens")}
        return cls(
            one_line(file.absolute().parent.name),
            file,
            lines,
            found.provenance.signatures if found else {},
            settings.get("data.reader.root"),
            data,
            result_settings(recorded),
            [name for name in found.scores if found.provenance.references] if found else [],
        )

    @property
    def references(self) -> dict[ImageId, list[str]]:
        return {image: line.references for image, line in self.lines.items()}


class Pair:
    """The images of two files of captions, the same unless `common_only`, with references unless
    not `needed`.

    Their `language` and `tokens` are those of the first run, or English words, where none are
    given.
    """

    def __init__(
        self,
        files: Sequence[object],
        references: str | None,
        needed: bool,
        common_only: bool,
        language: str | None = None,
        tokens: str | None = None,
        modules: Sequence[str] = (),
        cache: Path = Path("cache"),
    ) -> None:
        self.sides = [Side.read(file, references is None) for file in files]
        data = self.sides[0].data
        chosen = {
            "language": language or data.get("language"),
            "tokens": tokens or data.get("tokens"),
        }
        self.language = Language.of(chosen, modules)
        for side in self.sides:
            add_scores(list(side.lines.values()), side.scores, self.language, cache)
        if self.sides[0].short == self.sides[1].short:
            self.sides = [replace(side, short=one_line(str(side.file))) for side in self.sides]
        known = {
            image: texts for image, texts in self._known(references).items() if texts or not needed
        }
        if not known:
            raise CaptioningError(
                "there are no references to score the captions with: name their file, "
                "references=FILE, or compare "
                "without, metrics=[]"
            )
        images = common_images(
            known, {str(side.file): side.lines for side in self.sides}, common_only
        )
        self.references = {image: known[image] for image in images}
        self.lines = [[side.lines[image] for image in images] for side in self.sides]
        for line in chain(*self.lines):
            line.count(self.language)

    @cached_property
    def differing_settings(self) -> dict[str, tuple[str, str]]:
        """The settings in which two runs differ, with both values as text; null for one that a run
        does not have.
        """
        one, other = (side.settings for side in self.sides)
        if not (one and other):
            return {}
        both = {
            key: (quoted(one.get(key)), quoted(other.get(key)))
            for key in sorted(one.keys() | other.keys())
        }
        return {key: values for key, values in both.items() if values[0] != values[1]}

    def _known(self, file: str | None) -> Mapping[ImageId, list[str]]:
        if file is not None:
            known, files = (
                read_references(given_path(file), bare=True),
                read_photographs(given_path(file)),
            )
            for line in chain(*(side.lines.values() for side in self.sides)):
                line.photograph = line.photograph or files.get(line.image_id)
            return {
                image: known[image]
                for image in known
                if any(image in side.lines for side in self.sides)
            }
        own = [side.references for side in self.sides if any(side.references.values())] or [
            self.sides[0].references
        ]
        if any(own[-1].get(image, texts) != texts for image, texts in own[0].items()):
            names = " and ".join(str(side.file) for side in self.sides)
            raise CaptioningError(
                f"{names} have different references of the same images: name those to score both "
                "with, references=FILE"
            )
        return own[0]

    def score(
        self, metrics: Sequence[str], timeout: float, objects: str | None, first: str | None
    ) -> list[list[Statistics]]:
        """Score all captions; return the statistics of each side for a bootstrap.

        Lines get the scores of `metrics` and of `objects`, the length, and what both files hold if
        it was computed alike: of the same images with the same references, by metrics of the same
        signatures. `names` are the scores that single captions of both sides have, `first` first.
        """
        one, other = self.sides
        alike = one.references == other.references
        alike &= all(
            other.signatures.get(metric, each) == each for metric, each in one.signatures.items()
        )
        for line in chain(*self.lines):
            held = [each for each in line.scores.items() if alike and each[1] is not None]
            line.scores = dict(held) | {LENGTH: float(len(line.words))}
        held_names = [name for line in chain(*self.lines) for name in line.scores]
        known = list(
            dict.fromkeys([HEADLINE, *SCORES, *scores_of(metrics, self.language.code), *held_names])
        )
        if first not in (None, *known):
            raise CaptioningError(f"there is no score={first}.{did_you_mean(str(first), known)}")
        self.signatures = dict(one.signatures) if alike else {}
        found = self._scored(metrics, timeout, objects) if metrics else [[], []]
        ours, theirs = ({name for line in lines for name in line.scores} for lines in self.lines)
        self.names = sorted(ours & theirs, key=lambda name: (name != first, known.index(name)))
        if first not in (None, self.names[0]):
            raise CaptioningError(f"score={first}: single captions have {', '.join(self.names)}")
        computed = {name for each in found[0] for name in each.names}
        for name in self.names:
            columns = [[line.scores.get(name) for line in lines] for lines in self.lines]
            is_mean = (score_called(name).mean or name == LENGTH) and None not in chain(*columns)
            for statistics, column in zip(found, columns, strict=True):
                if is_mean and name not in computed:
                    statistics.append(
                        mean_statistics({name: [(score or 0) / PERCENT for score in column]})
                    )
        return found

    def _scored(
        self, metrics: Sequence[str], timeout: float, objects: str | None
    ) -> list[list[Statistics]]:
        references = list(self.references.values())
        raise_first({ENGLISH_OBJECTS: objects is not None and self.language.code != ENGLISH})
        chosen: list[str | Metric] = [*metrics]
        if objects:
            categories = read_objects(given_path(objects), self.references)
            chosen.append(Chair(dict(zip(self.references, categories, strict=True))))
        images = [ScoredImage(image) for image in self.references]
        scorer = Scorer(references, chosen, timeout, self.language, images)
        found = []
        for lines in self.lines:
            scores = scorer.score(dict(enumerate(line.caption for line in lines)))
            for row, line in enumerate(lines):
                line.scores |= {
                    name: score for name, score in scores.per_image[row].items() if isfinite(score)
                }
                line.hallucinated = (
                    list(scores.hallucinated[row] or ())
                    if scores.hallucinated
                    else line.hallucinated
                )
            found.append(list(scores.statistics))
        self.signatures |= scorer.signatures
        return found
