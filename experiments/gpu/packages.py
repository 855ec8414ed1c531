"""Install wheels of missing or outdated packages into a separate folder."""

import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).parents[2]


def install_missing(wheels: Path, target: Path) -> list[str]:
    """Install what is missing of the project's dependencies from `wheels`; return the names of
    these wheels.

    A package that neither this Python nor `wheels` has is left out: not every dependency is needed.
    """
    available = {parse_wheel_filename(path.name)[0]: path for path in sorted(wheels.glob("*.whl"))}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chosen: dict[str, Path] = {}
    wanted = list(project["dependencies"])
    while wanted:
        requirement = Requirement(wanted.pop())
        name = canonicalize_name(requirement.name)
        if name in chosen or name not in available or fulfilled(requirement):
            continue
        chosen[name] = available[name]
        wanted += needs_of(available[name])
    if chosen:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += [
            "--no-index",
            "--no-deps",
            "--no-compile",
            "--no-cache-dir",
            "--target",
            str(target),
        ]
        subprocess.run([*pip, *map(str, chosen.values())], check=True)
    return [path.name for path in chosen.values()]


def fulfilled(requirement: Requirement) -> bool:
    """Tell whether this Python needs or already has it."""
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return True
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def needs_of(wheel: Path) -> Iterable[str]:
    """Return the requirements of a wheel."""
    with ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    return [
        line.removeprefix("Requires-Dist:").strip()
        for line in lines
        if line.startswith("Requires-Dist:")
    ]
