"""Check your setup and explain how to fix it: `python -m captioning.doctor`.

Only the standard library is imported at first, so that it starts where packages are missing or broken.
"""

import sys
from collections.abc import Sequence

from captioning.doctor.checks import CHECKS
from captioning.doctor.findings import Finding, Settings, guarded
from captioning.errors import CaptioningError, no_setting

SETTINGS = {"data.root": "root", "runs": "runs", "cache": "cache", "timeout": "timeout"}
MAX_TIMEOUT = 86_400  # as of a run, whose own check needs packages that may be missing here
USAGE = """python -m captioning.doctor [data.root=FOLDER] [runs=FOLDER] [cache=FOLDER] [timeout=SECONDS]

Checks Python, packages, Java, the scorers, PyTorch, GPU, memory, disk, data and W&B, and explains how to fix what is
not ready. Exit code 0: `python -m captioning.run` can run here. 1: something that it needs is missing.
"""


def main(arguments: Sequence[str]) -> int:
    """Print the findings of each check; return the exit code."""
    if {"--help", "-h"} & set(arguments):
        print(USAGE, end="")
        return 0
    missing = 0
    settings = read_settings(arguments)
    for name, check in CHECKS.items():
        for finding in guarded(name, check(settings)):
            print(show(finding), flush=True)
            missing += finding.mark == "missing"
    verdict = f"cannot run here: {missing} missing, each with its fix below" if missing else "can run here"
    print(f"\n`python -m captioning.run` {verdict}")
    return 1 if missing else 0


def read_settings(arguments: Sequence[str]) -> Settings:
    """Settings of a command line of `key=value`."""
    given: dict[str, object] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise CaptioningError(f"{argument} is not a setting; settings have the form KEY=VALUE")
        if key not in SETTINGS:
            raise CaptioningError(no_setting("", key, list(SETTINGS)))
        given[SETTINGS[key]] = _seconds(value) if key == "timeout" else value
    return Settings(**given)  # type: ignore[arg-type]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= MAX_TIMEOUT:
        allowed = f"it must be a number above 0 and at most {MAX_TIMEOUT}"
        raise CaptioningError(f"timeout={text:.200} is not allowed; {allowed}")
    return seconds


def show(finding: Finding) -> str:
    """One line for a finding, and one for the fix."""
    line = f"{finding.mark:<10}{finding.subject:<15} {finding.text}"
    return f"{line}\n{'':<10}{'':<16}-> {finding.fix}" if finding.fix else line


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except CaptioningError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
