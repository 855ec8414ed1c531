"""A built wheel works in another directory: the configuration travels inside."""

import os
import subprocess
import sys
from pathlib import Path

import captioning

ROOT = Path(__file__).parent.parent


def test_run_from_a_wheel(tmp_path: Path) -> None:
    def python(*arguments: str, cwd: Path = ROOT, path: str = "") -> str:
        environment = os.environ | {"PYTHONPATH": path}
        return subprocess.run(
            [sys.executable, *arguments], cwd=cwd, env=environment, check=True, capture_output=True, text=True
        ).stdout

    python("-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"))
    (wheel,) = (tmp_path / "dist").glob("captioning-*.whl")
    installed = tmp_path / "installed"
    python("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(installed), str(wheel))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    where = python("-c", "import captioning.config.registry as c; print(c.CONF)", cwd=elsewhere, path=str(installed))
    assert where.strip() == str(installed / "captioning" / "conf")
    shown = python("-m", "captioning.run", "experiment=demo", "--cfg", "job", cwd=elsewhere, path=str(installed))
    assert "_target_: captioning.models.Transformer" in shown
    assert "name: demo" in shown
    script = str(installed / "bin" / "captioning")
    shown = python(script, "download", "data=coco", "--cfg", "job", cwd=elsewhere, path=str(installed))
    assert "train2014.zip" in shown
    assert (installed / "captioning" / "py.typed").is_file()
    assert (installed / f"captioning-{captioning.__version__}.dist-info").is_dir()
    config_files = {path.relative_to(ROOT / "conf") for path in (ROOT / "conf").rglob("*.yaml")}
    assert {path.relative_to(where.strip()) for path in Path(where.strip()).rglob("*.yaml")} == config_files
