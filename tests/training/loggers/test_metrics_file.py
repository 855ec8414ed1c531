from pathlib import Path

from captioning.training.loggers.metrics_file import MetricsFile


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_rows_by_hand(tmp_path: Path) -> None:
    log = MetricsFile(tmp_path / "metrics.csv")
    log.log_metrics({"b": 1.5}, step=0)
    assert lines(log.path) == ["b,step", "1.5,0"]  # at once
    log.log_metrics({"b": 2, "a": 3}, step=1)
    log.log_metrics({"c": 4}, step=1)
    assert lines(log.path) == ["a,b,c,step", ",1.5,,0", "3,2,,1", ",,4,1"]


def test_a_resumed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    log = MetricsFile(tmp_path / "metrics.csv")
    for step in range(4):
        log.log_metrics({"loss": step}, step)
    log.log_metrics({"score": 9}, step=3)
    with log.path.open("a") as file:
        file.write("4,,1")  # a row that a killed run has begun, of step 10
    resumed = MetricsFile(log.path)
    resumed.keep(before=2)
    assert lines(log.path) == ["loss,step", "0,0", "1,1"]
    resumed.log_metrics({"loss": 7}, step=2)
    assert lines(log.path) == ["loss,step", "0,0", "1,1", "7,2"]


def test_nothing_to_keep(tmp_path: Path) -> None:
    log = MetricsFile(tmp_path / "metrics.csv")
    log.keep(before=0)
    log.log_metrics({"a": 1}, step=0)
    assert lines(log.path) == ["a,step", "1,0"]
