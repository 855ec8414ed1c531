"""List runs with their progress, score and state: `captioning runs FOLDER`.

`--json` prints a JSON list for other programs.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from annotated_types import MinLen
from pydantic import BaseModel

from captioning.config.command import command, start, while_read
from captioning.config.settings import Settings, check_folder
from captioning.config.types import Config, PathText, Seed, between, given_path
from captioning.errors import one_line, quoted
from captioning.files import markdown_table, to_json
from captioning.metrics.table import score_called
from captioning.progress import duration
from captioning.runs.folders.folder import is_being_written
from captioning.runs.folders.history import read_history
from captioning.runs.folders.record import Record
from captioning.runs.settings import each_setting, read_runs

HEADER = ("folder", "system", "seed", "steps", "best", "state", "age")
Steps = Annotated[int, between(0, 10**15)]


class RunsSettings(Settings):
    """Settings of `captioning runs`."""

    folders: Annotated[Sequence[PathText], MinLen(1)]
    """folders with runs at any depth below them"""
    as_json: bool
    """true, or --json: a JSON list"""


class Listed(BaseModel):
    """What the files of a run tell, which a stranger may have written."""

    folder: str
    system: str
    seed: Seed | None
    done: Steps
    steps: Steps | None
    monitor: str
    best: float | None
    state: str
    age: float
    """in seconds"""


@command("runs.yaml", RunsSettings, words="folders")
def main(config: RunsSettings) -> None:
    """Print a line for each run, the oldest first."""
    runs, damaged = list[Listed](), list[str]()
    for folder in config.folders:
        check_folder("folders", folder)
        found, refused = read_runs(given_path(folder), describe)
        runs += found
        damaged += refused
    runs.sort(key=lambda run: -run.age)
    with while_read():
        if config.as_json:
            print(to_json([run.model_dump() for run in runs], indent=2))
        elif runs:
            print(markdown_table(HEADER, [[*map(one_line, as_row(run))] for run in runs]))
        else:
            print(f"no run below {', '.join(config.folders)}")
    for line in damaged:
        print(line, file=sys.stderr)


def describe(folder: Path, settings: Config) -> Listed:
    """Read the files of a run."""
    record, history = Record.of(folder), read_history(folder)
    known = dict(each_setting(settings))
    monitor = quoted(known.get("callbacks.checkpoint.monitor"))
    scores = [row[monitor] for row in history if monitor in row]
    best = min if known.get("callbacks.checkpoint.mode") == "min" else max
    state = "unfinished" if record.result is None else "untested"
    if (folder / "scores.json").exists():
        state = "finished"
    elif is_being_written(folder):
        state = "being written"
    kinds = ("config.yaml", "metrics.csv", "checkpoints/*.ckpt")
    # of a link itself, which may lead nowhere
    changed = max(file.lstat().st_mtime for kind in kinds for file in folder.glob(kind))
    return Listed(
        folder=str(folder),
        system=quoted(known.get("model.title") or known.get("choices.model")),
        seed=known.get("seed"),
        done=record.done or max((1 + int(row.get("step", -1)) for row in history), default=0),
        steps=record.steps,
        monitor=monitor,
        best=best(scores, default=None) if record.result is None else record.result.best,
        state=state,
        age=time.time() - changed,
    )


def as_row(run: Listed) -> list[str]:
    """The cells of a line below `HEADER`."""
    steps = f"{run.done:,}" + ("" if run.steps is None else f" of {run.steps:,}")
    printed = score_called(run.monitor.removeprefix("val/")).printed
    best = "" if run.best is None else f"{run.monitor} {printed(run.best)}"
    return [run.folder, run.system, str(run.seed), steps, best, run.state, duration(run.age)]


if __name__ == "__main__":
    sys.argv[1:] = ["as_json=true" if word == "--json" else word for word in sys.argv[1:]]
    start(main)
