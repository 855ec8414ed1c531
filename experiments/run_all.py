"""Run a list of commands once each, one after the other, over days and interruptions.

    python experiments/run_all.py LIST [--state]

LIST is a text file with one shell command per line; empty lines and `#` lines are skipped. Each
command writes a log into the folder `LIST.state`, and a JSON file with the commit, the seconds and
the exit status when it ends. Run it again, on as many cores as there are, and each process takes
the next command that nobody runs and that has not succeeded; `captioning run ... resume=true`
continues where it was interrupted. A command that fails does not stop the others, and is tried
again the next time. `--state` only prints what is done.
"""

import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

from filelock import FileLock, Timeout


def read_commands(path: Path) -> list[str]:
    lines = map(str.strip, path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


class Entry:
    """A command and what is known of it; its files are named after it."""

    def __init__(self, command: str, folder: Path) -> None:
        self.command = command
        stem = hashlib.sha256(command.encode()).hexdigest()[:12]
        self.log, self.result = folder / f"{stem}.log", folder / f"{stem}.json"
        self.lock = FileLock(folder / f"{stem}.lock")

    @property
    def state(self) -> str:
        """`done`, `failed`, `running` or `waiting`, with minutes if it has ended."""
        try:
            self.lock.acquire(timeout=0)
        except Timeout:
            return "running"
        self.lock.release()
        if not self.result.exists():
            return "waiting"
        result = json.loads(self.result.read_text())
        word = "done" if result["status"] == 0 else "failed"
        return f"{word} in {result['seconds'] / 60:.0f} min"

    def run(self, commit: str) -> bool:
        """Run it unless it is done or runs elsewhere; return True unless it has failed."""
        try:
            with self.lock.acquire(timeout=0):
                if self.state.startswith("done"):
                    return True
                print(self.command, flush=True)
                begin = time.monotonic()
                with self.log.open("ab") as log:
                    status = subprocess.call(self.command, shell=True, stdout=log, stderr=log)
                seconds = round(time.monotonic() - begin)
                record = {"command": self.command, "commit": commit, "seconds": seconds}
                self.result.write_text(json.dumps({**record, "status": status}) + "\n")
                if status:
                    print(f"failed with status {status}: {self.log}", flush=True)
                return status == 0
        except Timeout:
            return True


def main(path: Path, only_state: bool) -> int:
    folder = path.with_name(f"{path.name}.state")
    folder.mkdir(exist_ok=True)
    entries = [Entry(command, folder) for command in read_commands(path)]
    if only_state:
        for entry in entries:
            print(f"{entry.state:16} {entry.command}")
        return 0
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()
    failed = [entry for entry in entries if not entry.run(commit)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--state" in sys.argv[2:]))
