"""Cases of a stage, measured in processes that may die, with a time limit for each."""

import argparse
import json
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

Measure = Callable[[dict[str, Any]], dict[str, Any]]


def stage_arguments(description: str | None, seconds: float) -> argparse.Namespace:
    """The command line of a stage that ends by itself after some seconds."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=["published", "small"], default="published")
    parser.add_argument("--seconds", type=float, default=seconds)
    return parser.parse_args()


class Worker:
    """A process that measures `cases` in their order; each is a plain dictionary, and so is each
    result.
    """

    def __init__(self, measure: Measure, cases: Sequence[dict[str, Any]], method: str) -> None:
        context = multiprocessing.get_context(method)
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(measure, cases, sender))
        self._process.start()
        sender.close()

    def next(self, seconds: float) -> dict[str, Any]:
        """The next result, or `{"error": reason}`, after which the process is gone."""
        try:
            if self._receiver.poll(max(0.0, seconds)):
                return self._receiver.recv()
            reason = f"no result within {max(0.0, seconds):.0f} s"
            self._process.kill()
        except EOFError:
            self._process.join(1)
            reason = f"the process ended with status {self._process.exitcode}"
        return {"error": reason}

    def end(self, patience: float = 5.0) -> None:
        """End the process, which may end by itself first."""
        self._process.join(patience)
        self._process.kill()
        self._process.join()


def _work(measure: Measure, cases: Sequence[dict[str, Any]], sender: Connection) -> None:
    for case in cases:
        try:
            result = measure(case)
        except Exception as error:
            traceback.print_exc()
            result = {"error": f"{type(error).__name__}: {error}"[:500]}
        sender.send(result)


def in_turn(
    measure: Measure, cases: Sequence[dict[str, Any]], seconds: float, deadline: float, method: str
) -> Iterator[dict[str, Any]]:
    """Each case with its result. After an error the next case gets a new process, as a GPU's fault
    would stay.

    Args:
        seconds: limit of a case, the start of its process included.
        deadline: of all cases, by `time.monotonic`.
    """
    left, worker = list(cases), None
    while left:
        worker = worker or Worker(measure, left, method)
        result = worker.next(min(seconds, deadline - time.monotonic()))
        yield left.pop(0) | result
        if "error" in result:
            worker.end(0.0)
            worker = None
    if worker is not None:
        worker.end()


def at_once(
    measure: Measure, cases: Sequence[dict[str, Any]], deadline: float, method: str
) -> Iterator[dict[str, Any]]:
    """Each case with its result, all measured at the same time."""
    workers = [Worker(measure, [case], method) for case in cases]
    for case, worker in zip(cases, workers, strict=True):
        yield case | worker.next(deadline - time.monotonic())
        worker.end()


class Rows:
    """The rows of a stage, in a file that is written after each."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, list[dict[str, Any]]()

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.rows, indent=1) + "\n", encoding="utf-8")
        part.replace(self.path)
        shown = {
            name: f"{value:.4g}" if isinstance(value, float) else value
            for name, value in row.items()
        }
        print("; ".join(f"{name} {value}" for name, value in shown.items()), flush=True)
