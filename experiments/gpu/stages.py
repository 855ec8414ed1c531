"""Try, time and train on this machine's GPU, without network or Java: `make gpu`, or `python3
stages.py`.

Stages run one after the other, each with its own time limit: `right` (tests), `fast` (steps and
decoding), `size` (Table 1 on made-up features of COCO's size) and, if asked for, `candidates` (what
may make them faster). `results.json` and `results.md` are written after every measurement. Epochs
of `size` that an earlier call has measured, on the same machine with the same code, stay. The exit
status is 1 if a test failed or a stage has no number.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from packages import install_missing

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
LIMITS = {"right": 180.0, "fast": 260.0, "size": 300.0, "candidates": 280.0}  # seconds of a stage


class Results:
    """What was measured so far, in `results.json` and `results.md`."""

    def __init__(self, folder: Path, machine: dict[str, Any]) -> None:
        self.folder = folder
        self.content: dict[str, Any] = {"machine": machine, "stages": {}}
        path = folder / "results.json"
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else self.content
        self.before = before["stages"] if before["machine"] == machine else {}

    def update(self, stage: str, **found: Any) -> None:
        self.content["stages"].setdefault(stage, {}).update(found)
        text = json.dumps(self.content, indent=1) + "\n"
        for name, content in (("results.json", text), ("results.md", self.markdown())):
            part = self.folder / f".{name}.part"
            part.write_text(content, encoding="utf-8")
            part.replace(self.folder / name)

    def markdown(self) -> str:
        machine = "; ".join(f"{name} {value}" for name, value in self.content["machine"].items())
        parts = ["# On a GPU", machine]
        for stage, found in self.content["stages"].items():
            status = found.get("status", "running")
            parts.append(f"## {stage}\n\n{status}, {found.get('seconds', 0):.0f} s")
            groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
            for row in found["rows"]:
                groups.setdefault(tuple(row), []).append(row)
            parts += [table(list(names), rows) for names, rows in groups.items()]
        return "\n\n".join(parts) + "\n"

    @property
    def good(self) -> bool:
        return all(stage["status"] == "done" for stage in self.content["stages"].values())


def table(names: list[str], rows: list[dict[str, Any]]) -> str:
    lines = [names, ["---"] * len(names), *([cell(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: Any) -> str:
    if value is None:
        return ""
    return (
        f"{value:.3g}"
        if isinstance(value, float)
        else str(value).replace("|", "/").replace("\n", " ")
    )


def run(
    stage: str,
    results: Results,
    options: argparse.Namespace,
    environment: dict[str, str],
    limit: float,
) -> None:
    """Run a stage in a process of its own, and keep its rows, its output and how it ended."""
    begin = time.monotonic()
    rows_file, log = options.output / f"{stage}.rows.json", options.output / f"{stage}.log"
    rows_file.unlink(missing_ok=True)
    before_file = options.output / f"{stage}.before.json"
    before_file.write_text(json.dumps(results.before.get(stage, {}).get("rows", [])))
    results.update(stage, rows=[])
    command = [
        sys.executable,
        str(HERE / f"{stage}.py"),
        str(rows_file),
        "--device",
        options.device,
    ]
    command += ["--size", options.size, "--seconds", f"{limit:.0f}"]
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # to be ended with all that it starts
    )
    timer = threading.Timer(
        limit + 10, end, [process]
    )  # a stage ends its last measurement by itself
    timer.start()
    assert process.stdout is not None
    with log.open("w", encoding="utf-8") as file:
        for line in process.stdout:
            file.write(line)
            file.flush()
            print(line, end="", flush=True)
            results.update(stage, rows=read(rows_file), seconds=time.monotonic() - begin)
    status = process.wait()
    timer.cancel()
    end(process)
    rows = read(rows_file)
    measured = [row for row in rows if "error" not in row]
    how = (
        "done"
        if status == 0 and measured
        else f"failed: status {status}, {len(measured)} measurements"
    )
    results.update(stage, rows=rows, seconds=time.monotonic() - begin, status=how)
    rows_file.unlink(missing_ok=True)
    before_file.unlink()
    print(f"{stage}: {how}, {time.monotonic() - begin:.0f} s", flush=True)


def end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def read(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def machine(environment: dict[str, str]) -> dict[str, Any]:
    """Describe this machine, in a process that has the packages."""
    code = (
        "import json, torch; from captioning.runs.provenance import code_digest, commit, versions; "
        "gpu = torch.cuda.is_available(); print(json.dumps({"
        "'device': torch.cuda.get_device_name() if gpu else 'cpu', 'CUDA': torch.version.cuda if "
        "gpu else None, "
        "'commit': commit(), 'code': code_digest(), **versions()}))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    if ended.returncode:
        sys.exit(f"error: this Python cannot import the package and its libraries:\n{ended.stderr}")
    return {**json.loads(ended.stdout), "cores": os.cpu_count(), "system": platform.platform()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", default="right,fast,size", help=f"some of {','.join(LIMITS)}")
    parser.add_argument(
        "--output", type=Path, default=Path("gpu"), help="folder of results and logs"
    )
    parser.add_argument(
        "--wheels",
        type=Path,
        default=ROOT / "wheels",
        help="folder of packages that may be missing",
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--size", choices=["published", "small"], default="published")
    options = parser.parse_args()
    stages = options.stages.split(",")
    if unknown := set(stages) - set(LIMITS):
        sys.exit(
            f"error: there is no stage {', '.join(sorted(unknown))}: choose some of "
            f"{', '.join(LIMITS)}"
        )
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as packages:
        installed = install_missing(options.wheels, Path(packages))
        path = [packages, str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        # tests and runs print as they go, and compiled code is kept with what else is temporary
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}
        results = Results(
            options.output, machine(environment) | {"from wheels": ", ".join(installed) or "none"}
        )
        for name, value in results.content["machine"].items():
            print(f"{name}: {value}", flush=True)
        for stage in stages:
            run(stage, results, options, environment, LIMITS[stage])
    print(f"written: {options.output / 'results.json'} and {options.output / 'results.md'}")
    sys.exit(not results.good)


if __name__ == "__main__":
    main()
