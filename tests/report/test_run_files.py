"""Run folders in which anything may have happened: read right, refused in a sentence, or left out and named."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from captioning.config.explain import explain, is_expected
from captioning.report.runs import find_runs
from captioning.report.summary import print_summary
from captioning.report.systems import group
from captioning.report.tables import markdown, write_csv

CONFIG = {
    "name": "flickr8k",
    "folder": "runs/flickr8k-sat_soft-seed1",
    "seed": 1,
    "test": True,
    "choices": {"model": "sat_soft", "data": "flickr8k"},
    "model": {"_target_": "captioning.models.Recurrent", "d_hidden": 5},
    "optimizer": {"betas": [0.9, 0.999]},
}
SCORES = {
    "scores": {"BLEU-4": 18.5, "METEOR": 19.0, "CIDEr": None},
    "provenance": {"data_digest": "d1", "parameters": {"trainable": 7}, "seconds_to_best": 9.5, "device": "a machine"},
}
LINES = [
    {"image_id": 1, "caption": "a man rides", "references": ["a man", "a rider"], "scores": {"CIDEr": 0.5}},
    {"image_id": "b.jpg", "caption": "two dogs\u2028play", "references": ["dogs"], "scores": {"CIDEr": 0.25}},
]
METRICS = "epoch,seconds,step,train/nll,val/CIDEr,val/nll\n0,,9,3.0,,\n0,60.0,9,,20.0,2.5\n1,120.0,19,,30.0,2.0\n"
FILES = {
    "config.yaml": yaml.safe_dump(CONFIG),
    "scores.json": json.dumps(SCORES),
    "captions.jsonl": "".join(json.dumps(line) + "\n" for line in LINES),
    "metrics.csv": METRICS,
}
TEXT = st.text("ab09 -:.,|&*!%@#'\"\n\t[]{}\\", max_size=9)
STRANGE = ["${oc.env:HOME}", "\x1b[31m", "\ud800", "$x^$", "\u202e", "x" * 5000, "NaN", 10**400, float("nan"), 1e300]
PLAIN = st.sampled_from(STRANGE) | st.sampled_from([None, True, 0, -1, 0.5]) | st.integers() | st.floats() | TEXT
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
TREES: dict[str, Any] = {"config.yaml": CONFIG, "scores.json": SCORES, "captions.jsonl": LINES}
DEEP = [start * 5000 for start in (b"[", b"{", b'{"a":', b"- ")]
WHOLE = [b"", b"null", b"[]", b"{}", b"\n", b"\x00", b"epoch\n" + b"1" * 140_000, *DEEP]


def changed(node: Any, draw: st.DrawFn) -> Any:
    """The same with one value, at any depth, replaced or left out."""
    if not isinstance(node, dict | list) or not node or draw(st.booleans()):
        return draw(VALUES)
    items = list(node.items() if isinstance(node, dict) else enumerate(node))
    key, _ = draw(st.sampled_from(items))
    rest = [(k, changed(v, draw) if k == key else v) for k, v in items if k != key or draw(st.integers(0, 3))]
    return dict(rest) if isinstance(node, dict) else [v for _, v in rest]


def another_value(name: str, draw: st.DrawFn) -> str:
    if name == "metrics.csv":
        rows = [line.split(",") for line in METRICS.splitlines()]
        row, place = draw(st.sampled_from(rows)), draw(st.integers(0, 5))
        row[place : place + draw(st.integers(0, 1))] = [str(value) for value in draw(st.lists(PLAIN, max_size=2))]
        return "".join(",".join(row) + "\n" for row in rows)
    node = changed(TREES[name], draw)
    if name == "config.yaml":
        return yaml.safe_dump(node)
    return "\n".join(map(json.dumps, node if isinstance(node, list) else [node]))


@st.composite
def contents(draw: st.DrawFn, name: str) -> bytes:
    """A file of a run folder with another value in it, with other bytes, or something else altogether."""
    how = draw(st.sampled_from(["value", "value", "bytes", "whole"]))
    if how == "value":
        return another_value(name, draw).encode(errors="surrogatepass")
    if how == "whole":
        return draw(st.sampled_from(WHOLE) | st.sampled_from(WHOLE) | st.binary(max_size=99))
    content = FILES[name].encode()
    start, length = draw(st.integers(0, len(content))), draw(st.integers(0, 9))
    return content[:start] + draw(st.binary(max_size=9) | st.just(b"!!int x")) + content[start + length :]


@pytest.mark.parametrize("name", FILES)
@settings(deadline=None)  # PyYAML is slow on deep nesting
@given(data=st.data())
def test_any_content(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    content = data.draw(contents(name))
    home = tmp_path_factory.getbasetemp() / "any"
    folder = home / "run"
    folder.mkdir(parents=True, exist_ok=True)
    for each, text in FILES.items():
        (folder / each).write_bytes(content if each == name else text.encode())
    runs, left_out = find_runs(home)
    if not runs:
        assert name != "captions.jsonl"
        if not left_out:  # of no run
            assert name == "config.yaml"
            assert b"model" not in content or "model" not in yaml.safe_load(content)
        for line in left_out:
            assert str(folder) in line
            assert line.isprintable()
            assert len(line) < len(str(folder)) + 400
    for run in runs:
        said = json.loads((folder / "scores.json").read_bytes())["scores"]
        assert run.scores == {key: value for key, value in said.items() if value is not None}
        assert run.seed == yaml.safe_load((folder / "config.yaml").read_bytes())["seed"]
        run.training_loss("seconds")
        page = markdown("title", group([run]), (), 20.0)
        assert all(line.isprintable() for line in page.splitlines())
        write_csv(home / "table.csv", [("title", group([run]))], 20.0)
    damage: Exception | None = None
    try:
        print_summary(folder)
    except Exception as error:
        damage = error
    assert damage is None or (is_expected(damage) and str(folder / name) in explain(damage))
