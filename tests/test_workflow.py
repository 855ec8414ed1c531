"""The workflow of a code host calls `make` alone, with targets that there are."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]


def test_every_step_is_a_target_of_make():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)
    runs = {step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step}
    assert runs
    assert runs <= {f"make {target}" for target in targets}


def test_the_oldest_python_is_the_one_that_is_required():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in ("test", "newest"):
        pythons = JOBS[name]["strategy"]["matrix"]["python"]
        assert project["requires-python"] == f">={pythons[0]}"


def test_constraints_that_are_empty_take_the_newest_versions():
    """`?=` of make leaves a variable that the environment sets to nothing."""
    assert JOBS["newest"]["env"] == {"CONSTRAINTS": ""}
    (default,) = re.findall(r"^CONSTRAINTS \?= (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert (ROOT / default.removeprefix("-c ")).is_file()
