"""The tests of tests/gpu on a device: `python right.py FILE`; a row for each."""

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from cases import Rows

ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=["published", "small"], default="published", help="small: a few of them")
    parser.add_argument("--seconds", type=float, default=90.0)
    given = parser.parse_args()
    rows = Rows(given.file)
    with tempfile.TemporaryDirectory() as name:
        report = Path(name) / "report.xml"
        command = [sys.executable, "-m", "pytest", "tests/gpu/test_right.py", "-v", "-p", "no:cacheprovider"]
        # another machine has other versions, whose warnings are none of the project's
        command += ["-W", "ignore", "-m", "gpu" if given.device == "cuda" else "not gpu", f"--junitxml={report}"]
        command += ["-k", "losses"] if given.size == "small" else []
        if importlib.util.find_spec("xdist") and given.size == "published":
            command += ["-n", "4", "--dist=worksteal"]
        try:
            status = subprocess.run(command, cwd=ROOT, timeout=given.seconds).returncode
        except subprocess.TimeoutExpired:
            rows.add({"test": "all", "error": f"no end within {given.seconds:.0f} s"})
            sys.exit(1)
        for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
            row = {"test": case.get("name"), "seconds": float(case.get("time", 0))}
            problems = [each for kind in ("failure", "error", "skipped") for each in case.iter(kind)]
            rows.add(row | ({"error": f"{problems[0].tag}: {problems[0].get('message')}"[:500]} if problems else {}))
    sys.exit(status)


if __name__ == "__main__":
    main()
