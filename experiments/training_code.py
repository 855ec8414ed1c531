"""Which commits train alike: `python experiments/training_code.py` writes `training_code.csv`.

A row for each commit of a record, with a digest of the statements (no comments, no docstrings) of
all files of the package at that commit but those in rooms that no training reads. Needs the whole
history of the repository.
"""

import ast
import csv
import hashlib
import json
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
FILE = HERE / "training_code.csv"
NOT_READ = ("report", "serve", "push", "download", "doctor", "describe", "benchmark", "export")


def recorded_commits() -> list[str]:
    """The commits of all records, without the mark of uncommitted changes."""
    records = (json.loads(path.read_text()) for path in HERE.glob("*/*/scores.json"))
    commits = {record["provenance"].get("commit") for record in records}
    return sorted(commit.removesuffix("+") for commit in commits if commit)


def digest(commit: str) -> str:
    """Of the statements that a training at a commit reads, whatever the files are called."""

    def git(*arguments: str) -> bytes:
        return subprocess.check_output(["git", "-C", str(HERE), *arguments])

    names = git("ls-tree", "-r", "--name-only", "--full-tree", commit, "captioning").decode()
    files = [
        name
        for name in names.splitlines()
        if name.endswith(".py") and name.split("/")[1].removesuffix(".py") not in NOT_READ
    ]
    each = sorted(_statements(git("show", f"{commit}:{name}")) for name in files)
    return hashlib.sha256("".join(each).encode()).hexdigest()[:12]


def _statements(source: bytes) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [  # type: ignore[attr-defined]
                line
                for line in body
                if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
            ]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def main() -> None:
    with FILE.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["commit", "code"])
        table.writerows((commit, digest(commit)) for commit in recorded_commits())


if __name__ == "__main__":
    main()
