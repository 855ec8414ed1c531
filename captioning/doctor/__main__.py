"""Says what on this machine is ready and how to mend what is not: `python -m captioning.doctor`.

It imports nothing but the standard library, so that it starts where packages are missing or broken. What needs them is
asked of other processes, which may crash or hang (see `captioning.doctor.probes`).
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path

from captioning.doctor.findings import OPTIONAL, Finding, folder, guarded, memory, packages, photographs
from captioning.errors import CaptioningError, no_setting

CHILDREN = (("pytorch", "devices", "weights"), ("scorers",), ("wandb",))
"""Checks that share a process, named after the first, because the imports take longer than they do."""
LONGEST_TIMEOUT = 86_400
"""As of a run; its own check needs packages that may be missing here."""
BUSY = "if the machine is only busy: timeout=SECONDS allows longer"

USAGE = """python -m captioning.doctor [data.root=FOLDER] [runs=FOLDER] [cache=FOLDER] [timeout=SECONDS]

Checks Python, packages, Java, the scorers, PyTorch, GPU, memory, disk, data and W&B, and says how to mend what is not
ready. Exit code 0: `python -m captioning.run` can run here. 1: something that it needs is missing.
"""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line can set.

    Attributes:
        root: `data.root`, a data set in the Karpathy layout to look at; None looks at none.
        runs: the folder of run folders, as in a run.
        cache: the folder of drawn scenes and features, as in a run.
        timeout: seconds of silence after which a Java scorer counts as hung, as `metrics.timeout` in a run.
    """

    root: str | None = None
    runs: str = "runs"
    cache: str = "cache"
    timeout: float = 60


def main(arguments: Sequence[str]) -> int:
    """Prints a line per finding as soon as it is known; returns the exit code."""
    if {"--help", "-h"} & set(arguments):
        print(USAGE, end="")
        return 0
    missing = 0
    for finding in examine(read_settings(arguments)):
        print(show(finding), flush=True)
        missing += finding.mark == "missing"
    print(
        f"\n`python -m captioning.run` {'can run' if not missing else 'cannot run'} here"
        + (f": {missing} missing, with the mend below each" if missing else "")
    )
    return 1 if missing else 0


def read_settings(arguments: Sequence[str]) -> Settings:
    """The settings of a command line of `key=value`.

    Raises:
        CaptioningError: an argument is of another form, names no setting or has a value of the wrong kind.
    """
    names = {"data.root" if field.name == "root" else field.name: field.name for field in fields(Settings)}
    given: dict[str, object] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise CaptioningError(f"{argument} is no setting; settings have the form KEY=VALUE")
        if key not in names:
            raise CaptioningError(no_setting("", key, list(names)))
        given[names[key]] = _seconds(value) if key == "timeout" else value
    return Settings(**given)  # type: ignore[arg-type]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds <= LONGEST_TIMEOUT:
        raise CaptioningError(
            f"timeout={text:.200} is not allowed; it must be a number above 0 and at most {LONGEST_TIMEOUT}"
        )
    return seconds


def examine(settings: Settings) -> Iterator[Finding]:
    """All findings; what takes seconds is begun first and reported last."""
    with ThreadPoolExecutor() as threads:
        answers = [threads.submit(ask, names, settings.timeout) for names in CHILDREN]
        starts = threads.submit(command_starts, settings.timeout)
        yield from guarded("packages", packages())
        yield from guarded("memory", memory())
        for name, path in (("runs", settings.runs), ("cache", settings.cache)):
            yield from guarded(name, folder(name, Path(path)))
        yield from guarded("data", photographs(settings.root))
        for answer in answers:
            yield from answer.result()
        yield starts.result()


def ask(names: Sequence[str], timeout: float) -> list[Finding]:
    """The findings of checks made in a process of their own; where that crashed or hung, a finding that says so."""
    command = [sys.executable, "-m", "captioning.doctor.probes", str(timeout), *names]
    output, failure = _run(command, limit=3 * timeout)  # Java may be silent twice, and imports take their time
    found = [Finding(**json.loads(line)) for line in output.splitlines() if line.startswith('{"subject"')]
    if failure:
        found.append(
            Finding(names[0], "attention" if names[0] in OPTIONAL else "missing", f"the check {failure}", BUSY)
        )
    return found


def command_starts(timeout: float) -> Finding:
    """Whether `captioning.run` imports all that it needs and composes its configuration."""
    rooms = ("config.check", "features.inputs", "training.selection")
    start = f"import captioning.{', captioning.'.join(rooms)}; from captioning.run import main; main()"
    _, failure = _run([sys.executable, "-c", start, "--cfg", "job"], limit=3 * timeout)
    if failure:
        return Finding("captioning.run", "missing", failure, f"mend first what is missing above; {BUSY}")
    return Finding("captioning.run", "ok", "starts")


def _run(command: list[str], limit: float) -> tuple[str, str]:
    """What a command printed, and how it failed, "" if it did not."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode(errors="replace"), f"did not end within {limit:g} s"
    last = (ended.stderr.strip().splitlines() or ["without a word"])[-1]
    return ended.stdout, f"ended with exit status {ended.returncode}: {last}" if ended.returncode else ""


def show(finding: Finding) -> str:
    """One line for what was found, and one for the mend."""
    line = f"{finding.mark:<10}{finding.subject:<15} {finding.text}"
    return f"{line}\n{'':<10}{'':<16}-> {finding.mend}" if finding.mend else line


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except CaptioningError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
