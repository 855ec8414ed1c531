"""SPICE where it can run.

Its models are too large to be downloaded for a test: a program of the test's own stands in for
`java`.
"""

import os
import urllib.request

import pytest
from processes import SCRIPT
from pycocoevalcap.spice import get_stanford_models, spice
from refusals import refuses
from test_java import install

from captioning.metrics import Scorer
from captioning.metrics.spice import Spice

SPICE = """{script}import json, sys
if sys.argv[-1] == "-version":
    sys.exit(print('openjdk version "{version}" 2019-10-15', file=sys.stderr))
{fail}
asked = json.load(open(sys.argv[sys.argv.index("-Xmx8G") + 3]))
scores = [0.5 if "dog" in image["test"] else None for image in asked]
answer = [
    {{"image_id": image["image_id"], "scores": {{"All": {{"f": f}}}}}}
    for image, f in zip(asked, scores)
]
json.dump(answer[::-1], open(sys.argv[sys.argv.index("-out") + 1], "w"))
"""


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """A folder in place of pycocoevalcap's own, so that nothing changes there."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where nothing answers
    monkeypatch.delenv("no_proxy", raising=False)
    urllib.request.install_opener(None)  # or an earlier download's goes without the proxy
    folder = tmp_path / "spice"
    (folder / "lib").mkdir(parents=True)
    monkeypatch.setattr(get_stanford_models, "SPICEDIR", str(folder))
    monkeypatch.setattr(spice, "__file__", str(folder / "spice.py"))
    return folder


@pytest.mark.parametrize("version", ["1.8.0_312", "14"])
def test_spice(monkeypatch, tmp_path, folder, capfd, version):
    install(tmp_path, monkeypatch, SPICE.format(script=SCRIPT, version=version, fail=""))
    (folder / "lib" / "stanford-corenlp-3.6.0.jar").touch()
    if version == "14":  # as of a read-only installation
        monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    scorer = Scorer([["a dog runs"], ["Two dogs."]], metrics=["SPICE"])
    scores = scorer.score({0: "A dog!", 1: "The dog"})
    assert (scores.corpus, scores.per_image) == ({"SPICE": 50}, [{"SPICE": 50}] * 2)
    assert ((folder / "cache").exists(), (folder / "tmp").exists()) == (version != "14", False)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    "version, fail, models, refused",
    [
        ("8", "sys.exit(3)", True, "8 GB.*exit status 3"),
        ("11.0.4", "", False, "download failed.*refused.*spice/lib"),
        ("1.7.0_80", "", True, "version 8 to 14"),
        ("15.0.1", "", True, "version 8 to 14"),
    ],
)
def test_spice_is_refused(monkeypatch, tmp_path, folder, version, fail, models, refused):
    install(tmp_path, monkeypatch, SPICE.format(script=SCRIPT, version=version, fail=fail))
    if models:
        (folder / "lib" / "stanford-corenlp-3.6.0.jar").touch()
    with refuses(f"(?s){refused}"):
        Spice("en").compute([["a dog"]], [["a dog runs"]])
