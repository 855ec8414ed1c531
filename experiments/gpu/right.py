"""The tests of tests/gpu on a device: `python right.py FILE` writes a row as each test ends."""

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from cases import Rows

ROOT = Path(__file__).parents[2]


class Recorder:
    """A plugin of pytest that keeps what became of each test."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        row = {"test": report.nodeid.rpartition("::")[2], "seconds": report.duration}
        if report.outcome != "passed":
            lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
            row["error"] = " ".join([report.outcome, *lines])[:500]
        self.rows.add(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--size", choices=["published", "small"], default="published", help="small: a few of them"
    )
    parser.add_argument("--seconds", type=float, help="unused: who starts this ends it")
    given = parser.parse_args()
    os.chdir(ROOT)
    options = ["tests/gpu/test_right.py", "-q", "-p", "no:cacheprovider"]
    # another machine has other versions, whose warnings are none of the project's
    options += ["-W", "ignore", "-m", "gpu" if given.device == "cuda" else "not gpu"]
    options += ["-k", "losses"] if given.size == "small" else []
    if importlib.util.find_spec("xdist") and given.size == "published":
        options += ["-n", "4", "--dist=worksteal"]
    sys.exit(pytest.main(options, plugins=[Recorder(Rows(given.file.absolute()))]))


if __name__ == "__main__":
    main()
