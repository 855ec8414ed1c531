"""A built wheel works in another directory: the configuration travels inside, and a captioner."""

import json
import os
import subprocess
import sys
from pathlib import Path

import captioning

ROOT = Path(__file__).parent.parent
NOWHERE = "http://127.0.0.1:9"
"""Where nobody answers."""
DOG = ROOT / "experiments" / "photographs" / "000000377575.jpg"


def test_run_from_a_wheel(tmp_path: Path) -> None:
    def python(*arguments: str, cwd: Path = ROOT, path: str = "", **variables: str) -> str:
        environment = os.environ | {"PYTHONPATH": path} | variables
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    python("-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"))
    (wheel,) = (tmp_path / "dist").glob("captioning-*.whl")
    installed = tmp_path / "installed"
    python(
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(installed),
        str(wheel),
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    script = str(installed / "bin" / "captioning")
    for command, part in (
        (["run", "experiment=demo"], "name: demo"),
        (["download", "data=coco"], "train2014.zip"),
    ):
        assert part in python(script, *command, "--cfg", "job", cwd=elsewhere, path=str(installed))
    where = installed / "captioning" / "conf"
    assert {path.relative_to(where) for path in where.rglob("*.yaml")} == {
        path.relative_to(ROOT / "conf") for path in (ROOT / "conf").rglob("*.yaml")
    }

    # with the bundled captioner, in an empty home and without a network
    alone = {"HOME": str(elsewhere), "XDG_CACHE_HOME": str(elsewhere), "HF_HOME": str(elsewhere)}
    alone |= {
        "OMP_NUM_THREADS": "1",
        **dict.fromkeys(("http_proxy", "https_proxy", "HF_ENDPOINT"), NOWHERE),
    }
    said = python(script, "predict", str(DOG), cwd=elsewhere, path=str(installed), **alone)
    assert "dog" in json.loads(said)["caption"].split()
    code = f"import captioning; print(captioning.load().caption({str(DOG)!r})[0].caption)"
    caption = python("-c", code, cwd=elsewhere, path=str(installed), **alone)
    assert caption.strip() == json.loads(said)["caption"]

    assert (installed / "captioning" / "py.typed").is_file()
    assert (installed / f"captioning-{captioning.__version__}.dist-info").is_dir()
