from functools import partial

import pytest
from caption_files import annotations, results
from evaluating import OURS, REFERENCES

from captioning import evaluate


@pytest.fixture
def command(printed):
    """Runs the command; gives what it prints."""
    return partial(printed, evaluate.main, "timeout=600")


@pytest.fixture(autouse=True)
def _files(elsewhere):
    results("ours.json", OURS)
    annotations("references.json", REFERENCES)
