"""Reader of `data=speech`, synthetic speech: random strings of phones and their frames.

L frames of D features. A phone is a fixed trajectory, stretched to a random number of frames, with
noise.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Interval
from numpy.typing import NDArray
from pydantic import Strict

from captioning.config.types import NotNegative, Seed, Width, validated
from captioning.data.example import SPLITS, Example, Reference
from captioning.files import atomic_write
from captioning.progress import progress_bar

PHONES = ("aa", "eh", "iy", "ow", "uw", "b", "d", "k", "m", "n", "s", "sh", "f", "l", "r", "z")
KNOTS = 4
"""Points of a phone's trajectory, between which it is a straight line."""
FORMAT = 1
"""Increase this when features change."""
Features = NDArray[np.float64]
Utterances = Annotated[int, Interval(ge=1, le=100_000)]
Range = Annotated[tuple[Annotated[int, Ge(1)], Annotated[int, Ge(1)]], Strict(False)]


@dataclass(frozen=True)
class SpeechReader:
    """Utterances of phones in uniformly random order, determined by the arguments.

    Features are files `root/NAME.npy` `[L, D]` in half precision, read by `backbone=features`;
    names begin with a digest of the arguments, so that other utterances lie in the same folder.
    """

    root: str | Path
    train: Utterances = 2000
    val: Utterances = 200
    test: Utterances = 200
    phones: Range = (3, 8)  # fewest and most of an utterance
    frames: Range = (5, 15)  # of a phone
    repeats: Annotated[int, Ge(1)] = 1  # an utterance is as many copies of a drawn string of phones
    dim: Width = 24  # D
    noise: NotNegative = 0.5  # standard deviation; that of a phone's features is 1
    seed: Seed = 0

    @property
    def writes_to(self) -> Path:
        """The folder of the features; only readers that write files have this attribute."""
        return Path(self.root).expanduser()

    def __call__(self) -> dict[str, list[Example]]:
        """Return the examples of `train`, `val` and `test`; draw features that are not there."""
        settings = {
            name: value for name, value in vars(self).items() if name not in ("root", *SPLITS)
        }
        digest = hashlib.sha256(
            json.dumps({"format": FORMAT, **settings}, sort_keys=True).encode()
        ).hexdigest()[:12]
        # phones are those of the seed, whatever the utterances
        templates = np.random.default_rng(self.seed).standard_normal((len(PHONES), KNOTS, self.dim))
        self.writes_to.mkdir(parents=True, exist_ok=True)
        with progress_bar(
            "Drawing speech", sum(getattr(self, split) for split in SPLITS), "utterance"
        ) as progress:
            return {split: list(self._draw(split, digest, templates, progress)) for split in SPLITS}

    def _draw(
        self, split: str, digest: str, templates: Features, progress: Any
    ) -> Iterator[Example]:
        for number in range(getattr(self, split)):
            path = self.writes_to / f"{digest}-{split}-{number:05d}.npy"
            draw = np.random.default_rng([self.seed, SPLITS.index(split), number])
            count = draw.integers(*self.phones, endpoint=True)
            phones = np.tile(draw.integers(len(PHONES), size=count), self.repeats)
            if not path.exists():
                lengths = draw.integers(*self.frames, size=len(phones), endpoint=True)
                clean = np.concatenate(
                    [
                        stretched(templates[phone], n)
                        for phone, n in zip(phones, lengths, strict=True)
                    ]
                )
                with atomic_write(path) as file:
                    np.save(
                        file,
                        (clean + self.noise * draw.standard_normal(clean.shape)).astype(np.float16),
                    )
            words = tuple(PHONES[phone] for phone in phones)
            progress.update()
            yield Example(f"{split}-{number}", path, (Reference(" ".join(words), words),))


SpeechReader.__init__ = validated(SpeechReader.__init__)  # type: ignore[method-assign]


def stretched(template: Features, length: int) -> Features:
    """`[KNOTS, D]` to `[length, D]`, ends included."""
    places = np.linspace(0, len(template) - 1, length)
    return np.stack(
        [np.interp(places, np.arange(len(template)), column) for column in template.T], axis=1
    )
