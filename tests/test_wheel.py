"""A built wheel works in another directory: the configuration travels inside, and a captioner."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import captioning

ROOT = Path(__file__).parent.parent
NOWHERE = "http://127.0.0.1:9"
"""Where nobody answers."""
DOG = ROOT / "experiments" / "photographs" / "000000377575.jpg"


def test_run_from_a_wheel(tmp_path):
    def python(*arguments, cwd, **variables):
        command, environment = [sys.executable, "-m", *arguments], os.environ | variables
        return subprocess.run(
            command, cwd=cwd, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    built, installed, elsewhere = (tmp_path / name for name in ("dist", "installed", "elsewhere"))
    python("build", "--wheel", "--no-isolation", "--outdir", str(built), cwd=ROOT)
    (wheel,) = built.glob("captioning-*.whl")
    zipfile.ZipFile(wheel).extractall(installed)
    where = installed / "captioning" / "conf"
    assert {path.relative_to(where) for path in where.rglob("*.yaml")} == {
        path.relative_to(ROOT / "conf") for path in (ROOT / "conf").rglob("*.yaml")
    }
    assert (installed / "captioning" / "py.typed").is_file()
    information = installed / f"captioning-{captioning.__version__}.dist-info"
    scripts = (information / "entry_points.txt").read_text()
    assert "captioning = captioning.__main__:program" in scripts

    # with the bundled captioner, in an empty home and without a network
    elsewhere.mkdir()
    alone = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "HF_HOME"), str(elsewhere))
    alone |= dict.fromkeys(("http_proxy", "https_proxy", "HF_ENDPOINT"), NOWHERE)
    alone |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(installed)}
    settings = python(
        "captioning", "run", "experiment=demo", "--cfg", "job", cwd=elsewhere, **alone
    )
    assert "name: demo" in settings
    said = python("captioning", "predict", str(DOG), cwd=elsewhere, **alone)
    assert "dog" in json.loads(said)["caption"].split()
