"""What systems say of the photographs that they were tested on: `captions.jsonl`, image by image, system by system."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from pydantic import BaseModel

from captioning.errors import CaptioningError
from captioning.files import read_state
from captioning.metrics.scorer import HEADLINE
from captioning.report.reading import ADVICE, Score
from captioning.report.systems import System

ImageId = int | str


class Line(BaseModel):
    """One line of `captions.jsonl`; those of earlier versions name no photograph."""

    image_id: ImageId
    caption: str
    references: list[str]
    scores: dict[str, Score | None] = {}
    photograph: str | None = None


@dataclass(frozen=True, slots=True)
class Described:
    """A photograph of the test split, as the systems describe it.

    Attributes:
        image_id: as the data set has it.
        references: of the first system that was tested on it.
        answers: of each system by its place in the table, of its first run; those not tested on it have none.
        scores: likewise, of each of its runs.
    """

    image_id: ImageId
    references: list[str]
    answers: dict[int, Line] = field(default_factory=dict)
    scores: dict[int, list[Mapping[str, float | None]]] = field(default_factory=dict)


def described_images(systems: Sequence[System]) -> tuple[list[Described], list[str]]:
    """The photographs that the systems were tested on, and a line on each system that is left out.

    A photograph is the same for two systems where it has the same id and the same references.
    """
    images: dict[tuple[ImageId, tuple[str, ...]], Described] = {}
    left_out = []
    for place, system in enumerate(systems):
        try:
            runs = [read_state(run.folder / "captions.jsonl", _lines, ADVICE) for run in system.runs]
        except CaptioningError as error:
            left_out.append(f"captions of {system.label}: {error}")
            continue
        for line in chain.from_iterable(runs):
            key = line.image_id, tuple(line.references)
            image = images.setdefault(key, Described(line.image_id, line.references))
            image.answers.setdefault(place, line)
            image.scores.setdefault(place, []).append(line.scores)
    return list(images.values()), left_out


def metrics(images: Sequence[Described]) -> list[str]:
    """The scores that single captions have, CIDEr first, by which the best and the worst are told."""
    names = {name for image in images for line in image.answers.values() for name in line.scores}
    return sorted(names, key=lambda name: (name != HEADLINE, name))


def worst(images: Sequence[Described], place: int, metric: str, number: int = 5) -> list[Described]:
    """The photographs whose captions by one system score least."""
    scored = [
        image for image in images if place in image.answers and image.answers[place].scores.get(metric) is not None
    ]
    return sorted(scored, key=lambda image: image.answers[place].scores[metric] or 0)[:number]


def _lines(content: str) -> list[Line]:
    return [Line.model_validate_json(line) for line in content.split("\n") if line.strip()]


def folder_of(system: System) -> Path:
    """Of its first run, whose captions, photographs and attention are shown."""
    return system.runs[0].folder
