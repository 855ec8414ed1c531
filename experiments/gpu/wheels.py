"""Collect wheels of what a machine with a GPU may lack: `make wheels`, on a machine with a network.

Such a machine has a CUDA build of PyTorch, torchvision, lightning, torchmetrics, timm, joblib and
what these need.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPLETE = ("pydantic", "filelock")  # with what they need
ALONE = ("hydra-core", "hydra-joblib-launcher", "omegaconf", "pycocoevalcap")
WITHOUT_WHEEL = "antlr4-python3-runtime==4.9.3"  # which the two above need
PLATFORMS = [f"manylinux_2_{number}_x86_64" for number in (28, 27, 17)] + ["manylinux2014_x86_64"]
LEFT_OUT = (".jar", ".gz")  # Java's programs and their tables, 100 MB


def collect(folder: Path, python: str) -> None:
    """Fill `folder` with wheels for that version of Python on Linux."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    with tempfile.TemporaryDirectory() as name:
        download = [*pip, "download", "--dest", name, "--constraint", str(ROOT / "constraints.txt")]
        download += ["--only-binary=:all:", "--python-version", python, "--implementation", "cp"]
        download += [part for platform in PLATFORMS for part in ("--platform", platform)]
        subprocess.run([*download, *COMPLETE], check=True)
        subprocess.run([*download, "--no-deps", *ALONE], check=True)
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", name, WITHOUT_WHEEL], check=True)
        for wheel in sorted(Path(name).glob("*.whl")):
            repack(wheel, folder / wheel.name)


def repack(source: Path, target: Path) -> None:
    """Copy a wheel without what is `LEFT_OUT`."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith(".dist-info/RECORD"):
                rows = content.decode().splitlines(keepends=True)
                content = "".join(
                    row for row in rows if not row.split(",")[0].endswith(LEFT_OUT)
                ).encode()
            if not name.endswith(LEFT_OUT):
                new.writestr(name, content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("wheels"))
    parser.add_argument("--python", default="3.12", help="version of the other machine")
    given = parser.parse_args()
    collect(given.folder, given.python)
    for wheel in sorted(given.folder.glob("*.whl")):
        print(f"{wheel.stat().st_size / 1e6:6.2f} MB  {wheel.name}")
