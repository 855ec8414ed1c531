"""How many examples a property is tried with, an empty directory for a command, and two small runs,
each trained once for all workers.

What takes seconds to import is imported where it is needed: a test of a part waits for PyTorch
alone.
"""

import logging
import os
import pickle
import sys
from pathlib import Path

import pytest
from browser import ABSENT, FOUND, browser
from filelock import FileLock
from hypothesis import HealthCheck, settings

PROFILES = {"test": 60, "soak": 1000}
for name, examples in PROFILES.items():
    settings.register_profile(
        name,
        max_examples=examples,
        derandomize=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],  # which is the machine's
    )
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "test")
settings.load_profile(PROFILE)


def pytest_itemcollected(item):
    """The soak profile is for the trials of `make soak`, which then have the properties among
    them.
    """
    if PROFILE == "soak" and getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        item.add_marker("soak")


def pytest_collection_modifyitems(items):
    """Whole runs, whose files stand directly in this folder, begin first: one that began last would
    keep everybody waiting.
    """
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)


@pytest.fixture(scope="session", autouse=True)
def _own_sets(tmp_path_factory):
    """What the library `datasets` keeps is no file of the user's, and comes from no server."""
    os.environ["HF_DATASETS_CACHE"] = str(tmp_path_factory.mktemp("sets"))
    os.environ["HF_DATASETS_OFFLINE"] = "1"


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """Gives what a function leaves in a folder and returns, made once for all workers."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name, make):
        folder, given = base / name, base / f"{name}.pickle"
        with FileLock(base / f"{name}.lock"):
            if not given.exists():
                folder.mkdir(exist_ok=True)
                given.write_bytes(pickle.dumps(make(folder)))
        return pickle.loads(given.read_bytes())

    return made


@pytest.fixture(scope="session")
def shapes_run(once):
    """A trainable backbone on drawn scenes, trained until it says different things of different
    images.
    """
    from small_runs import on_shapes

    return once("shapes", on_shapes)


@pytest.fixture(scope="session")
def cached_run(once):
    """A frozen SqueezeNet with weights from a file, which is gone afterwards, on photographs and
    their mirrors.
    """
    from small_runs import on_cached_features

    return once("cached", on_cached_features)


@pytest.fixture(scope="session")
def chromium():
    if FOUND is None:
        pytest.skip(ABSENT)
    with browser() as found:
        yield found


@pytest.fixture
def printed(elsewhere, capsys, monkeypatch):
    """Runs a command in this process; gives what it prints."""
    from composing import start

    def run(main, *arguments):
        monkeypatch.setattr(sys, "argv", ["command", *arguments])
        start(main)
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(capsys, monkeypatch):
    """Runs a command that must end with exit code 1 and one sentence alone; gives the sentence."""
    from composing import start

    def run(main, *arguments, out=""):
        monkeypatch.setattr(sys, "argv", ["command", *arguments])
        with pytest.raises(SystemExit) as ended:
            start(main)
        assert ended.value.code == 1
        said = capsys.readouterr()
        assert out is None or said.out == out
        assert "Traceback" not in said.err
        (line,) = [line for line in said.err.splitlines() if line.startswith("error: ")]
        return line.removeprefix("error: ")

    return run


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An empty current directory, and logging as it was (Hydra configures it for this test's
    output).
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield tmp_path
    root.handlers[:], root.level = handlers, level
    for name in logging.root.manager.loggerDict:  # of a sweep
        logging.getLogger(name).filters.clear()
