"""Check your setup and explain how to fix it: `python -m captioning.doctor`.

Only the standard library is imported at first, so that it starts where packages are missing or
broken.
"""

import io
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from typing import Any

from captioning.doctor import checks
from captioning.doctor.checks import INSTALL, LONGEST, OPTIONAL, Finding, Mark
from captioning.errors import CaptioningError, no_setting, one_line

# named as those of a run: a data set in the Karpathy layout, two folders, seconds of a Java scorer
# (`metrics.timeout`)
SETTINGS: Mapping[str, Any] = {"data.root": None, "runs": "runs", "cache": "cache", "timeout": 60.0}
USAGE = """python -m captioning.doctor [data.root=FOLDER] [runs=FOLDER] [cache=FOLDER]
    [timeout=SECONDS]

Checks Python, packages, Java, the scorers, PyTorch, GPU, memory, disk, data and W&B, and explains
how to fix what is not ready. Exit code 0: `python -m captioning.run` can run here. 1: something
that it needs is missing.
"""


def main(arguments: Sequence[str]) -> int:
    """Print the findings of each check; return the exit code."""
    if {"--help", "-h"} & set(arguments):
        print(USAGE, end="")
        return 0
    settings, missing = read_settings(arguments), 0
    # each begins when its findings are asked for
    every = {
        "packages": checks.packages(),
        "memory": checks.memory(),
        "runs": checks.folder("runs", settings["runs"]),
        "cache": checks.folder("cache", settings["cache"]),
        "data": checks.photographs(settings["data.root"]),
        "pytorch": checks.pytorch(),
        "devices": checks.devices(),
        "weights": checks.weights(),
        "scorers": checks.scorers(settings["timeout"]),
        "wandb": checks.weights_and_biases(),
        "captioning.run": checks.command_starts(),
    }
    for name, findings in every.items():
        for finding in guarded(name, findings):
            line = f"{finding.mark:<10}{finding.subject:<15} {finding.text}"
            print(
                line, *([f"{'':<26}-> {finding.fix}"] if finding.fix else []), sep="\n", flush=True
            )
            missing += finding.mark == "missing"
    verdict = (
        f"cannot run here: {missing} missing, each with its fix below"
        if missing
        else "can run here"
    )
    print(f"\n`python -m captioning.run` {verdict}")
    return 1 if missing else 0


def guarded(subject: str, findings: Iterator[Finding]) -> list[Finding]:
    """Findings, each on one line, and one more for a check that fails; libraries print nothing
    meanwhile.
    """
    found: list[Finding] = []
    with (
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
        warnings.catch_warnings(action="ignore"),
    ):
        try:
            found.extend(findings)
        except Exception as error:  # a broken installation may raise anything
            fix = (
                INSTALL
                if isinstance(error, ImportError)
                else f"first fix what is missing above; else {INSTALL}"
            )
            text = (
                str(error)
                if isinstance(error, CaptioningError)
                else f"{type(error).__name__}: {error}"
            )
            mark: Mark = "attention" if subject in OPTIONAL else "missing"
            found.append(Finding(subject, mark, f"not checked: {text}", fix))
    return [replace(finding, text=one_line(finding.text)[:LONGEST]) for finding in found]


def read_settings(arguments: Sequence[str]) -> dict[str, Any]:
    """Settings of a command line of `key=value`."""
    given = dict(argument.partition("=")[::2] for argument in arguments)
    for key, value in given.items():
        if key not in SETTINGS or not value:
            raise CaptioningError(no_setting("", key, list(SETTINGS)))
    return {**SETTINGS, **given, "timeout": float(given.get("timeout", SETTINGS["timeout"]))}


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except (CaptioningError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
