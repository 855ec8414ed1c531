"""JSON as tests read it, write it and change it in a file."""

import json
from contextlib import contextmanager
from pathlib import Path


def read_json(path):
    return json.loads(Path(path).read_text())


def write_json(path, content):
    """In a folder that is made if need be."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(content))


@contextmanager
def changed_json(path):
    """The content of a file, which is written back with what was changed in it."""
    content = read_json(path)
    yield content
    write_json(path, content)


def read_lines(path):
    """A value from each line, which may hold line ends of other kinds."""
    return [json.loads(line) for line in Path(path).read_text().split("\n")[:-1]]


def parsed(said):
    """A value from each line that a command has printed."""
    return [json.loads(line) for line in said.splitlines()]


def write_lines(path, values):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(json.dumps(value) + "\n" for value in values))
