"""What a run has left, whatever has happened to it since: read right, or named with what to do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from borders import VALUES, mutated, read_or_refused
from hypothesis import given
from hypothesis import strategies as st

from captioning.config.settings import each_setting, read_settings
from captioning.errors import CaptioningError
from captioning.runs.record import begin, end, recorded_digests, result
from captioning.training.loggers.metrics_file import MetricsFile

RESULTS = st.fixed_dictionaries({"best": VALUES})
RECORDS = st.fixed_dictionaries({}, optional={"digests": VALUES, "result": VALUES | RESULTS})
HEADER = "loss,step\r\n"


def read_or_named(path: Path, content: bytes, read: Callable[[], Any]) -> Any:
    """What is read of the content; None where it is refused as it should be."""
    path.write_bytes(content)
    found, said = read_or_refused(read)
    if said is not None:
        assert said.startswith(f"{path} cannot be read or is damaged (")
        assert "away" in said or "delete it" in said
        assert len(said) < len(str(path)) + 400
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


RECORD = json.dumps({"digests": {"data": "d"}, "result": {"best": 1.5, "widths": {"1": 0.5}}}).encode()


@given(content=st.binary(max_size=40) | mutated(RECORD) | st.builds(lambda v: json.dumps(v).encode(), VALUES | RECORDS))
def test_any_record(folder: Path, content: bytes) -> None:
    read = read_or_named(folder / "run.json", content, lambda: (recorded_digests(folder), result(folder)))
    if read is not None:
        digests, ended = read
        assert all(isinstance(text, str) for item in digests.items() for text in item)
        assert ended is None or ended["best"] is None or isinstance(ended["best"], float)


CONFIG = yaml.safe_dump({"seed": 1, "cache": "cache", "data": {"root": None, "words": [1, 2.5, "x"]}}).encode()


@given(content=st.binary(max_size=40) | mutated(CONFIG) | st.builds(lambda v: yaml.safe_dump(v).encode(), VALUES))
def test_any_configuration(folder: Path, content: bytes) -> None:
    settings = read_or_named(folder / "config.yaml", content, lambda: read_settings(folder / "config.yaml"))
    if settings is not None:
        assert len(list(each_setting(settings))) <= len(content) + 1  # nothing in it has grown


METRICS = (HEADER + "0.5,0\r\n0.25,1\r\n,2\r\n").encode()


@given(content=st.binary(max_size=40) | mutated(METRICS), before=st.integers(1, 3))
def test_any_metrics(folder: Path, content: bytes, before: int) -> None:
    path = folder / "metrics.csv"
    log = MetricsFile(path)
    read_or_named(path, content, lambda: log.keep(before))
    if path.exists() and path.read_bytes() != content:  # accepted: it goes on
        log.log_metrics({"loss": 1}, step=before)
        MetricsFile(path).keep(before + 1)


NASTY = {
    "null": b"null",
    "a list": b"[1]",
    "deep": b"[" * 100_000,
    "deep objects": b'{"digests":' * 100_000,
    "binary": bytes(range(256)),
    "huge field": b'step,"' + b"x" * 10**6 + b'"\r\n1,2\r\n',
    "emptied": b"",
}


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("file", ["run.json", "config.yaml", "metrics.csv"])
def test_what_is_no_state_is_named(tmp_path: Path, name: str, file: str) -> None:
    path = tmp_path / file
    readers: dict[str, Callable[[], Any]] = {
        "run.json": lambda: result(tmp_path),
        "config.yaml": lambda: read_settings(path),
        "metrics.csv": lambda: MetricsFile(path).keep(before=5),
    }
    assert read_or_named(path, NASTY[name], readers[file]) is None
    with path.open("wb") as sparse:
        sparse.truncate(2**40)
    with pytest.raises(CaptioningError, match=r"\(it has 1,099,511,627,776 bytes\)"):
        readers[file]()
    path.unlink()
    path.mkdir()
    with pytest.raises(CaptioningError, match=r"\(it is a folder\)"):
        readers[file]()


@pytest.mark.parametrize(
    "content",
    [{"digests": {"data": 5}}, {"digests": None}, {"result": {}}, {"result": {"best": "good"}}, {"result": [1]}],
)
def test_records_of_wrong_types(tmp_path: Path, content: Any) -> None:
    assert read_or_named(tmp_path / "run.json", json.dumps(content).encode(), lambda: result(tmp_path)) is None


def test_a_score_that_is_no_number_is_none(tmp_path: Path) -> None:
    begin(tmp_path, {"data": "d"}, "32-true")
    end(tmp_path, {"best": float("nan"), "widths": {1: float("inf"), 3: 1.0}})
    assert "NaN" not in (tmp_path / "run.json").read_text()
    assert result(tmp_path) == {"best": None, "widths": {"1": None, "3": 1.0}}
    assert recorded_digests(tmp_path) == {"data": "d"}


def test_a_configuration_is_plain_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in it is looked up, and nothing stands for more than itself."""
    path = tmp_path / "config.yaml"
    monkeypatch.setenv("SECRET", "secret")
    path.write_text("a: ${oc.env:SECRET}\nb: ${a}\n")
    assert read_settings(path) == {"a": "${oc.env:SECRET}", "b": "${a}"}
    laughs = "a0: &a0 [x, x]\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]\n" for i in range(60))
    for refused in (laughs, "a: !!python/object/apply:os.getcwd []\n"):
        assert read_or_named(path, refused.encode(), lambda: read_settings(path)) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "it has no rows"),
        (HEADER, "it has no rows"),
        ("loss\r\n1\r\n", "it has no column step"),
        (HEADER + "1,first\r\n", "invalid literal"),
        (HEADER + "1\r\n2,1\r\n", "line 2 has not as many fields"),
        (HEADER + "1,0\r\n2,1,5\r\n", "line 3 has not as many fields"),
    ],
)
def test_a_history_that_is_gone_is_named(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(content.encode())
    with pytest.raises(CaptioningError, match=rf"metrics\.csv .*{reason}.*or delete it"):
        MetricsFile(path).keep(before=2)
    assert path.read_bytes() == content.encode()  # as it was, for the user to look at
    path.unlink()
    MetricsFile(path).keep(before=2)  # as advised
