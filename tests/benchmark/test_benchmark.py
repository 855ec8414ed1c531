"""The instrument runs what is asked for, and counts what it says it counts."""

import json
import statistics
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from small import SMALL, small
from torch.utils.flop_counter import FlopCounterMode

from captioning.backbones.context import ContextSet
from captioning.benchmark import data_parts, measure, naive, parts
from captioning.benchmark.__main__ import main
from captioning.benchmark.material import built_model, random_batch, sentences
from captioning.benchmark.measure import Measurement, line, table
from captioning.benchmark.parts import PARTS, check
from captioning.errors import CaptioningError
from captioning.metrics import Scorer


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures without the seconds that fresh processes take; the test of COCO's size has these."""
    monkeypatch.setattr(measure, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    monkeypatch.setattr(measure, "MATRIX", 7)


@pytest.mark.usefixtures("in_this_process")
def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = ["parts=[training]", "precisions=[32-true]", "output=speed.json"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "COPY_BYTES", measure.CHUNK)
    monkeypatch.setattr(sys, "argv", ["captioning.benchmark", *SMALL, *settings])
    main()
    printed = capfd.readouterr()
    assert printed.err == ""
    content = json.loads((tmp_path / "speed.json").read_text())
    assert {measured["part"] for measured in content["measurements"]} == {"training"}
    assert (content["settings"]["repeats"], content["machine"]["threads"] >= 1) == (2, True)
    assert content["ceilings"]["matrix multiply, 32-true, FLOP/s"] > 0
    first = content["measurements"][0]
    assert first["name"] == "32-true, 3 x 2 captions"
    assert [(len(first[run]["seconds"]), first[run]["amount"]) for run in ("ours", "naive")] == [
        (2, 6)
    ] * 2
    # what is printed is what is kept: the row while it is made, and the row of the table
    expected = f"{100 * first['share']:.0f}% of "
    rows = [row for row in printed.out.splitlines() if first["name"] in row]
    assert len(rows) == 2
    assert all(f"{first['ratio']:.2f}x" in row and expected in row for row in rows)
    assert [path.name for path in tmp_path.iterdir()] == ["speed.json"]


@pytest.mark.parametrize(
    "override",
    [
        *(
            "parts=training",
            "parts=[training,speling]",
            "parts=[]",
            "device=foo",
            "repeats=0",
            "search.widths=[]",
        ),
        *("precisions=[16-true]", "optimizer.lr=nan", "output=nowhere/speed.json"),
    ],
)
def test_what_cannot_work_is_refused(override: str) -> None:
    with pytest.raises(CaptioningError, match=override.partition("=")[0].partition(".")[0]):
        check(small(override))


def rows(measurements: Iterator[Measurement]) -> dict[str, Measurement]:
    found = {measurement.name: measurement for measurement in measurements}
    assert table(list(found.values())).count("\n") == len(found) + 1
    assert all(line(measurement).startswith(measurement.part) for measurement in found.values())
    return found


@pytest.mark.usefixtures("in_this_process")
def test_decoding() -> None:
    found = rows(PARTS["decoding"](small("search.widths=[1,3]")))
    assert list(found) == ["greedy, batch 2", "beam 3, batch 2", "beam 3, batch 2, memory alone"]
    for name in ("greedy, batch 2", "beam 3, batch 2"):
        assert (found[name].ours.amount, found[name].naive.amount) == (2, 1)
    assert set(found["beam 3, batch 2, memory alone"].raw) == {
        "peak after 2 batches",
        "peak after 3 batches",
    }


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("supported", [True, False])
def test_bfloat16_is_left_out_where_it_takes_forever(
    supported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "has_bfloat16", lambda device: supported)
    objective = "self_critical" if supported else "cross_entropy"  # one that samples captions
    measured = rows(PARTS["training"](small(f"objective={objective}")))[
        "bf16-mixed, 3 x 2 captions"
    ]
    assert (measured.ours is not None) == supported
    assert measured.note == ("" if supported else "left out: this CPU is slower in bfloat16")


@pytest.mark.usefixtures("in_this_process")
def test_backbone(capfd: pytest.CaptureFixture[str]) -> None:
    (measured,) = PARTS["backbone"](small())
    assert measured.name == "vgg11, 3 files of 80 x 60"
    # grid, inputs and outputs of the eight convolutions of 3 x 3, at 64 pixels
    layers = [
        (64, 3, 64),
        (32, 64, 128),
        (16, 128, 256),
        (16, 256, 256),
        (8, 256, 512),
        (8, 512, 512),
    ]
    layers += 2 * [(4, 512, 512)]
    by_hand = 3 * sum(2 * grid**2 * 9 * inputs * outputs for grid, inputs, outputs in layers)
    assert (measured.ours.amount, measured.ceiling.work) == (3, by_hand)
    (measured,) = PARTS["backbone"](
        small("backbone=patches", "backbone.grid=4", "backbone.trainable=false")
    )
    assert measured.name == "Patches, 3 files of 80 x 60"
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("in_this_process")
def test_cache(capfd: pytest.CaptureFixture[str]) -> None:
    reading, training_on_them = PARTS["cache"](small("vocab_size=2600"))
    work = 9 * 12 * 16 * 2  # images, positions, features, bytes of half precision
    assert (reading.ours.amount, reading.ceiling.work) == (9, work)
    assert (
        len(training_on_them.ours.seconds) == 1
    )  # nine images are three batches, of which two only start the loader
    assert capfd.readouterr().err == ""


def test_the_naive_features_are_those_of_the_cache_and_a_full_disk_is_said_beforehand(
    tmp_path: Path,
) -> None:
    ours, files = data_parts.features(small(), tmp_path)
    torch.testing.assert_close(files.rows([4, 0]), ours.rows([4, 0]), rtol=0, atol=0)
    assert ours.rows([4, 0]).shape == (2, 12, 16)
    with pytest.raises(CaptioningError, match="TMPDIR=FOLDER"):
        data_parts.features(small("cache.images=1000000000000"), tmp_path)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # their pipes to METEOR are left open
def test_scoring(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The raw scores that are timed are ours."""
    found: list[dict[str, float]] = []

    def once(references: Any, candidates: Any) -> None:
        if not found:
            found.append(naive.raw_scores(references, candidates))

    monkeypatch.setattr(parts, "Scorer", partial(Scorer, metrics=["BLEU"]))
    monkeypatch.setattr(parts, "raw_scores", once)
    (measured,) = PARTS["scoring"](small("repeats=1"))
    assert measured.name == "7 captions, 2 references each"
    assert measured.ours.amount == 7
    assert capfd.readouterr().err == ""
    made = sentences(7, 3)
    ours = (
        Scorer([texts[1:] for texts in made])
        .score({i: texts[0] for i, texts in enumerate(made)})
        .corpus
    )
    (raw,) = found
    assert {name: 100 * score for name, score in raw.items()} == pytest.approx(
        {name: ours[name] for name in raw}
    )
    assert all(score > 0 for name, score in raw.items() if name != "BLEU-4")


def test_data_at_the_size_of_coco_but_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, whose memory is measured, and with two more."""

    def isolated(function: Any, *args: Any) -> Any:
        return (
            function(*args) if function is data_parts._make else measure.isolated(function, *args)
        )

    monkeypatch.setattr(data_parts, "isolated", isolated)
    until_the_first_batch, an_epoch = PARTS["coco"](
        small("coco.images=75", "batch.captions=5", "context.grid=[14,14]")
    )
    assert until_the_first_batch.name == "75 images, 5 captions each, 0.0 GB of features"
    stages = [
        "reading",
        "vocabulary",
        "features",
        "captions",
        "the order of an epoch",
        "first batch",
    ]
    assert list(until_the_first_batch.raw) == stages
    assert (
        sum(until_the_first_batch.raw.values()) < until_the_first_batch.ours.median
    )  # a process starts before
    assert an_epoch.ours.amount == 3 * 3
    assert len(an_epoch.raw["private bytes"]) == 1 + 2
    assert min(an_epoch.raw["private bytes"][1:]) > 1e6


def test_startup(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that does nothing, one that refuses, and a checkpoint that is loaded, each once."""
    commands = {
        "import json": ["-c", "import json"],
        "refused": ["-m", "captioning.doctor", "run=x"],
    }
    monkeypatch.setattr(parts, "LIBRARIES", "import json")
    monkeypatch.setattr(parts, "COMMANDS", {**commands, parts.LOADED: parts.COMMANDS[parts.LOADED]})
    monkeypatch.setattr(
        parts, "timed", lambda actions, *_: {name: [run() or 1.0] for name, run in actions.items()}
    )
    found = rows(PARTS["startup"](small("backbone=patches", "backbone.grid=4")))
    assert list(found) == ["`import json`", "`refused`", f"`{parts.LOADED}`"]
    assert found[f"`{parts.LOADED}`"].note == "+0.00 s beside `import json`"
    with pytest.raises(AssertionError, match="No module named nothing"):
        parts._python(["-m", "nothing"])


def test_made_up_captions_are_like_real_ones() -> None:
    texts = [text.split() for captions in sentences(1000, 5) for text in captions]
    assert 9 < statistics.mean(map(len, texts)) < 11
    assert 1500 < len({word for text in texts for word in text}) <= 2500
    assert sentences(3, 2) == sentences(3, 2)


def test_counted_arithmetic_by_hand() -> None:
    config: Any = small()
    batch, model = random_batch(config, 3, 2), built_model(config)
    with FlopCounterMode(display=False) as counter:
        hidden = model(ContextSet(batch.inputs, (3, 4)), batch.sources).hidden.flatten(0, 2)[
            batch.word_index
        ]
        model.readout(hidden)
    b, n, c = batch.sources.shape
    e, hidden_width, positions, vocabulary = 16, 24, 12, 50
    encoder = b * positions * (4 * e * e + 2 * e * hidden_width) + b * 2 * positions * positions * e
    image = b * positions * 2 * e * e
    text = b * n * c * (4 * e * e + 2 * e * e + 2 * e * hidden_width) + b * n * 2 * c * c * e
    inter = b * n * c * 2 * positions * e
    readout = len(batch.word_index) * e * vocabulary
    assert counter.get_total_flops() == 2 * (2 * encoder + 4 * (image + text + inter) + readout)
