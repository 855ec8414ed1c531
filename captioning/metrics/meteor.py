"""METEOR 1.5 (Denkowski and Lavie, "Meteor Universal", WMT 2014), the jar that pycocoevalcap ships.

The protocol of the jar's -stdio mode: the line `SCORE ||| reference ||| .. ||| candidate` is answered with the match
statistics of one image, and `EVAL ||| statistics ||| ..` with one score per image and then the score of the corpus.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from pycocoevalcap.meteor import meteor as reference_implementation

from captioning.errors import CaptioningError
from captioning.metrics.java import JavaProcess

JAR = Path(reference_implementation.__file__).with_name(reference_implementation.METEOR_JAR)
NUMBERS = 23
"""Of one image in an answer to SCORE."""
LINE_SEPARATORS = re.compile("[\n\r]")


def _field(caption: str) -> str:
    """A caption that cannot be taken for two fields or two lines."""
    return LINE_SEPARATORS.sub(" ", caption).replace("|||", "").replace("  ", " ")


class Meteor(JavaProcess):
    """One METEOR process.

    It loads a table of paraphrases before its first answer: several seconds, and up to 2 GB of memory while it runs.

    Args:
        timeout: seconds of silence after which the process is taken for stuck. The time of one caption grows fast with
            its length: thousands of words against thousands take minutes, against a few they do not.

    Raises:
        CaptioningError: no Java was found.
    """

    def __init__(self, timeout: float = 60.0) -> None:
        super().__init__("METEOR", ["-Xmx2G", "-jar", str(JAR), "-", "-", "-stdio", "-l", "en", "-norm"], timeout)

    def score(self, references: Sequence[Sequence[str]], candidates: Sequence[str]) -> tuple[float, list[float]]:
        """The METEOR of the corpus and of each image, from 0 to 1: `match`, then `evaluate`."""
        return self.evaluate(self.match(references, candidates))

    def match(self, references: Sequence[Sequence[str]], candidates: Sequence[str]) -> list[str]:
        """The statistics of each caption against the reference that fits it best: a line of 23 numbers per image.

        Args:
            references: for each of B images its tokenised references, at least one.
            candidates: B tokenised captions.

        Raises:
            CaptioningError: there are no candidates, or not one for each image, an image has no reference, or the
                process died, fell silent or answered with something else.
        """
        if not candidates or len(candidates) != len(references) or not all(references):
            raise CaptioningError(
                f"METEOR was given {len(candidates)} candidates for {len(references)} images, of which "
                f"{sum(not captions for captions in references)} without references: it needs at least one image, one "
                "candidate for each image, and at least one reference for each"
            )
        for captions, candidate in zip(references, candidates, strict=True):
            self.write(" ||| ".join(["SCORE", *map(_field, captions), _field(candidate)]) + "\n")
        return [self._answer(NUMBERS) for _ in candidates]

    def evaluate(self, statistics: Sequence[str]) -> tuple[float, list[float]]:
        """The METEOR of the corpus and of each image, from 0 to 1, of what `match` gave.

        Raises:
            CaptioningError: the process died, fell silent or answered with something else.
        """
        self.write(" ||| ".join(["EVAL", *statistics]) + "\n")
        per_image = [float(self._answer(1)) for _ in statistics]
        return float(self._answer(1)), per_image

    def _answer(self, numbers: int) -> str:
        """The next line, of that many numbers."""
        line = self.read_line()
        try:
            count = len([float(number) for number in line.split()])
        except ValueError:
            count = 0
        if count != numbers:
            raise self.unexpected(f"{line!r:.200}")
        return line
