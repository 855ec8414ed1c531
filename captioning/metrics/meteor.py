"""METEOR 1.5 (Denkowski and Lavie, "Meteor Universal", WMT 2014), the jar that pycocoevalcap ships.

In the jar's -stdio mode the line `SCORE ||| reference ||| .. ||| candidate` is answered with the match statistics of
one image; `captioning.metrics.statistics` computes the scores from them.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from pycocoevalcap.meteor import meteor as reference_implementation

from captioning.metrics.java import Java, allowed_seconds
from captioning.metrics.statistics import Statistics, meteor_statistics

JAR = Path(reference_implementation.__file__).with_name(reference_implementation.METEOR_JAR)
LINE_SEPARATORS = re.compile("[\n\r]")


def _field(caption: str) -> str:
    """A caption that cannot be taken for two fields or two lines."""
    return LINE_SEPARATORS.sub(" ", caption).replace("|||", "").replace("  ", " ")


class Meteor(Java):
    """One METEOR process.

    It loads a table of paraphrases first: several seconds, and up to 2 GB of memory while it runs.
    """

    def __init__(self) -> None:
        super().__init__("METEOR", ["-Xmx2G", "-jar", str(JAR), "-", "-", "-stdio", "-l", "en", "-norm"])

    def match(
        self, references: Sequence[Sequence[str]], candidates: Sequence[str], timeout: float = 60.0
    ) -> Statistics:
        """The statistics of each caption against the reference that fits it best.

        Args:
            references: for each of B images its tokenised references, at least one.
            candidates: B tokenised captions.
            timeout: seconds for the answer, and as many again for every 500 captions. The time of one caption grows
                fast with its length: thousands of words against thousands take minutes, against a few they do not.
        """
        lines = [
            " ||| ".join(["SCORE", *map(_field, captions), _field(candidate)])
            for captions, candidate in zip(references, candidates, strict=True)
        ]
        answers = self.answer("\n".join(lines), allowed_seconds(timeout, len(lines))).splitlines()
        if len(answers) != len(lines):
            raise self.wrong_answer(f"{len(answers)} lines for {len(lines)} captions")
        try:
            return meteor_statistics(answers)
        except ValueError as error:
            raise self.wrong_answer(f"something else than statistics ({error})") from error
