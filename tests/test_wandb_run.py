"""What a run leaves in W&B, read back from its run file: the real package in the run's process,
without a network.
"""

import csv
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf
from processes import PACKAGE, fresh, run
from support import SHAPES, captions_of, checked, composed

OFFLINE = {"WANDB_MODE": "offline"}
RUN = [
    *SHAPES,
    "logger=wandb",
    "name=trial",
    "seed=7",
    "data.reader.train=64",
    "data.batch_size=8",
    "model.dropout=0",
    "optimizer.lr=0.03",
    "trainer.limit_train_batches=1.0",
    "trainer.max_epochs=4",
    "trainer.check_val_every_n_epoch=2",
    "metrics.val=[BLEU,CIDEr]",
    "callbacks.wandb.images=3",
    "callbacks.attention.images=2",
]
"""Until captions have words."""

AXES = {"epoch", "trainer/global_step", "seconds"}


@dataclass
class Logged:
    """What a run file holds."""

    run: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    artifacts: list[Any] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)


Both = list[tuple[Path, Logged]]


def records(file: Path) -> Iterator[Any]:
    """The records of a run file: LevelDB's log format (blocks of 32 KiB) behind a header of seven
    bytes.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    content = file.read_bytes()
    assert content[:4] == b":W&B"
    place, whole = 7, b""
    while place < len(content):
        left = -place % 2**15
        if 0 < left < 7:  # no room for the header of another piece
            place += left
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or its last piece
            yield Record.FromString(whole)
            whole = b""


def values(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def logged(file: Path) -> Logged:
    found = Logged()
    for record in records(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found.run = record.run
            found.config |= values(record.run.config.update)
        elif kind == "config":
            found.config |= values(record.config.update)
        elif kind == "history":
            found.history.append(values(record.history.item))
        elif kind == "summary":
            found.summary |= values(record.summary.update)
        elif kind == "artifact":
            found.artifacts.append(record.artifact)
        elif kind == "metric":
            found.metrics[record.metric.name or record.metric.glob_name] = record.metric
    return found


def run_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Both]:
    """Two runs of one process, of which the second has a test and asks for the checkpoint: what
    they print and log.
    """
    home = tmp_path_factory.mktemp("home")
    ended = fresh(
        home,
        "-m",
        *RUN,
        "test=false,true",
        "resume=false",
        "logger.wandb.log_model=${test}",
        **OFFLINE,
    )
    folders = [
        home / "runs" / f"trial-spatial_transformer-seed7{end}" for end in ("-test=false", "")
    ]
    both = [(folder, logged(file)) for folder in folders for file in run_files(folder)]
    return ended.stdout + ended.stderr, both


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def rows_of(folder: Path) -> list[dict[str, float]]:
    """The rows of the metrics file."""
    with (folder / "metrics.csv").open() as file:
        return [
            {name: float(value) for name, value in row.items() if value}
            for row in csv.DictReader(file)
        ]


def test_runs_are_named_and_configured_and_have_the_checkpoint_if_asked_for(
    trial: tuple[str, Both],
) -> None:
    printed, both = trial
    for folder, found in both:
        run, config = found.run, yaml.safe_load((folder / "config.yaml").read_text())
        system = f"trial-spatial_transformer{'' if folder == both[1][0] else '-test=false'}"
        assert (run.project, run.run_group, run.display_name) == ("captioning", system, folder.name)
        assert (list(run.tags), run.job_type) == (
            ["spatial_transformer", "shapes", "small_cnn"],
            "train",
        )
        assert run.run_id == (folder / "wandb_id").read_text()
        source = found.config["provenance"]
        assert found.config == config | {"provenance": source, "_wandb": found.config["_wandb"]}
        assert {"commit", "versions", "data_digest", "parameters", "device"} <= set(source)
        assert source.items() <= read_json(both[1][0] / "scores.json")["provenance"].items()
    assert both[0][1].run.run_id != both[1][1].run.run_id  # although one process had both
    said = [line for line in printed.splitlines() if "wandb" in line]
    assert any("wandb sync" in line for line in said)
    assert [line for line in said if "warn" in line.lower() or "error" in line.lower()] == []
    assert "v_num" not in printed
    models = [[each for each in found.artifacts if each.type == "model"] for _, found in both]
    assert models[0] == []
    assert all("best" in artifact.aliases for artifact in models[1])
    saved = [
        Path(entry.local_path).read_bytes()
        for each in models[1]
        for entry in each.manifest.contents
    ]
    same = saved == [(both[1][0] / "checkpoints" / "best.ckpt").read_bytes()]
    assert same  # pytest would take minutes to show the difference


def test_history_panels_and_summary(trial: tuple[str, Both]) -> None:
    """The history is that of the metrics file before the test, whose scores are in the summary,
    with the best of validations and the last of other values.
    """
    _, both = trial
    for folder, found in both:
        rows = [
            {
                name.replace("trainer/global_", ""): value
                for name, value in row.items()
                if not name.startswith("_")
            }
            for row in found.history
            if not {"val/captions/nrows", "test/captions/nrows", "val/attention/count"}
            & row.keys()  # of tables and images
        ]
        of_the_test = [
            row for row in rows_of(folder) if any(name.startswith("test/") for name in row)
        ]
        assert len(of_the_test) == (folder == both[1][0])
        assert rows == [row for row in rows_of(folder) if row not in of_the_test]
        names = {
            name
            for row in found.history
            for name in row
            if not {"captions", "attention"} & {*name.split("/")}
        }
        for name in names - AXES:
            pattern = next(p for p in (name, f"{name.split('/')[0]}/*", "*") if p in found.metrics)
            if not name.startswith("_"):
                axis = "epoch" if name.startswith("val/") else "trainer/global_step"
                assert found.metrics[pattern].step_metric == axis, name
        without = {f"val/BLEU-{n} (no brevity penalty)" for n in range(1, 5)}
        assert {
            name for name, metric in found.metrics.items() if metric.options.hidden
        } == AXES | without
        assert without <= names

        rows = [row for row in rows_of(folder) if "val/nll" in row]
        assert len(rows) == 2
        for name in ("val/BLEU-1", "val/BLEU-4 (no brevity penalty)", "val/CIDEr"):
            assert found.summary[name] == {"max": max(row[name] for row in rows)}
        assert found.summary["val/nll"] == {"min": min(row["val/nll"] for row in rows)}
        assert found.summary["val/attention entropy"] == rows[-1]["val/attention entropy"]
        assert not any(
            name.startswith("test/") and "captions/" not in name
            for row in found.history
            for name in row
        )
    record, summary = read_json(both[1][0] / "scores.json"), both[1][1].summary
    tested = {
        name: value
        for name, value in summary.items()
        if name.startswith("test/") and "captions/" not in name
    }
    assert tested == {
        f"test/{name}": pytest.approx(value, rel=1e-6) for name, value in record["scores"].items()
    }
    assert summary["provenance"] == record["provenance"]


def tables(found: Logged, split: str) -> list[tuple[list[dict[str, Any]], dict[str, Path]]]:
    """The rows of each table of a split as they go to W&B, and the pictures that go with them."""
    all_of_it = []
    for artifact in (each for each in found.artifacts if each.type == "run_table"):
        files = {entry.path: Path(entry.local_path) for entry in artifact.manifest.contents}
        if file := files.pop(f"{split}/captions.table.json", None):
            table = json.loads(file.read_text())
            all_of_it.append(
                ([dict(zip(table["columns"], row, strict=True)) for row in table["data"]], files)
            )
    return all_of_it


def test_tables_of_captions_at_every_validation_and_of_the_test(trial: tuple[str, Both]) -> None:
    _, both = trial

    def check_pictures(
        rows: list[dict[str, Any]], pictures: dict[str, Path], shown: int, folder: Path
    ) -> None:
        """One for each of the first rows, in the run folder."""
        shares = [row["attention"] and row["attention"]["path"] for row in rows]
        assert ({*shares[:shown]}, shares[shown:]) == ({*pictures}, [None] * (len(rows) - shown))
        assert all(folder in path.parents for path in pictures.values())

    for folder, found in both:
        steps = [row["trainer/global_step"] for row in found.history if "val/captions/nrows" in row]
        assert steps == [row["trainer/global_step"] for row in found.history if "val/nll" in row]
        (first, _), (rows, _) = tables(found, "val")
        assert [row["epoch"] for row in first] == [1, 1, 1]
        assert [(row["image_id"], row["epoch"]) for row in rows] == [
            (image, epoch) for image in ("1000000", "1000001", "1000002") for epoch in (1, 3)
        ]
        assert all(len(row["references"].split("\n")) == 5 for row in rows)
        assert all(row["caption"] for row in rows[1::2])
        # one panel, whose slider goes through the validations
        panels = [row for row in found.history if "val/attention/count" in row]
        assert [row["trainer/global_step"] for row in panels] == steps
        for panel, later in zip(panels, (False, True), strict=True):
            assert panel["val/attention/captions"] == [
                row["caption"] for row in (rows[1::2] if later else first)
            ]
            pictures = [
                run_files(folder)[0].parent / "files" / name
                for name in panel["val/attention/filenames"]
            ]
            assert len({path.read_bytes() for path in pictures}) == 3

    (_, without), (folder, found) = both
    assert tables(without, "test") == []
    ((rows, pictures),) = tables(found, "test")
    for row, line in zip(rows, captions_of(folder), strict=True):
        texts = {"image_id": str(line["image_id"]), "references": "\n".join(line["references"])}
        assert row == {
            **texts,
            "caption": line["caption"],
            **line["scores"],
            "attention": row["attention"],
        }
    check_pictures(rows, pictures, 2, folder)
    drawn = {path.read_bytes() for path in (folder / "attention").glob("*.png")}
    assert {path.read_bytes() for path in pictures.values()} == drawn


def test_a_resumed_run_is_the_same_one_and_has_its_checkpoint(trial: tuple[str, Both]) -> None:
    """Killed in its test, it saves no checkpoint any more."""
    (other, _), (folder, before) = trial[1]
    record = read_json(folder / "run.json")
    del record["result"]
    (folder / "run.json").write_text(json.dumps(record))
    (
        other / "run.json"
    ).unlink()  # of the same settings but for the test, it would be gone on with too
    changed = [
        "logger.wandb.log_model=true",
        "logger.wandb.offline=true",
        "callbacks.wandb.images=1",
    ]  # may change
    run(folder.parents[1], *RUN, *changed, "resume=true")
    _, file = run_files(folder)
    resumed = logged(file)
    assert resumed.run.run_id == before.run.run_id
    assert [a.type for a in resumed.artifacts] == ["model", "run_table"]
    assert {
        name.partition("/")[0] for row in resumed.history for name in row if name[0] != "_"
    } == {"test", "trainer"}
    assert resumed.config["folder"] == before.config["folder"]


SWEEP = yaml.safe_load((Path(PACKAGE) / "experiments" / "wandb_sweep.yaml").read_text())


def command(choice: dict[str, Any]) -> list[str]:
    """The overrides that W&B's own agent gives for a choice of values."""
    from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

    formats = create_sweep_command_args(
        {"args": {name: {"value": value} for name, value in choice.items()}}
    )
    _, _, module, name, *fixed = SWEEP["command"]
    assert (module, name) == ("-m", "captioning.run")
    assert fixed.pop() == "${args_no_hyphens}"
    return fixed + formats["args_no_hyphens"]


def choices() -> list[dict[str, Any]]:
    """Every value of every parameter, of a range its ends."""
    found = {
        name: p.get("values") or [p["min"], p["max"]] for name, p in SWEEP["parameters"].items()
    }
    most = max(map(len, found.values()))
    rounds = zip(
        *(itertools.islice(itertools.cycle(each), most) for each in found.values()), strict=True
    )
    return [dict(zip(found, each, strict=True)) for each in rounds]


def test_every_value_of_the_sweep_is_an_override_of_every_model() -> None:
    for choice, model in itertools.product(choices(), SWEEP["parameters"]["model"]["values"]):
        config = composed(*command(choice | {"model": model}))
        assert {
            name: OmegaConf.select(config, name) for name in choice if "." in name
        }.items() <= choice.items()
        assert config.logger.wandb is not None
        assert config.test is False
        assert SWEEP["metric"] == {"name": config.callbacks.checkpoint.monitor, "goal": "maximize"}
        if model == choice["model"]:
            checked(config)


def test_a_run_that_a_sweep_has_started(tmp_path: Path) -> None:
    """With the environment and the file that an agent makes; the run is the sweep's, by its id."""
    from wandb.sdk.lib.config_util import save_config_file_from_dict

    choice = choices()[-1]
    parameters = tmp_path / "config.yaml"
    save_config_file_from_dict(
        str(parameters), {name: {"value": value} for name, value in choice.items()}
    )
    agent = {
        "WANDB_SWEEP_ID": "s1",
        "WANDB_RUN_ID": "chosen",
        "WANDB_SWEEP_PARAM_PATH": str(parameters),
    }
    small = [override for override in SHAPES if not override.startswith("model.")]
    run(tmp_path, *small, *command(choice), **OFFLINE, **agent)
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "wandb_id").read_text() == "chosen"
    found = logged(*run_files(folder))
    assert (found.run.run_id, found.run.sweep_id) == ("chosen", "s1")
    assert (found.run.run_group, found.run.display_name) == (
        f"sweep-{choice['model']}_small",
        f"sweep-{choice['model']}_small-seed1",
    )
    assert {name: found.config[name] for name in choice} == choice
    assert found.config["optimizer"]["lr"] == choice["optimizer.lr"]
    assert found.summary["val/CIDEr"] == {
        "max": max(row.get("val/CIDEr", 0) for row in found.history)
    }
