"""What a run leaves in W&B, read back from its run file: the real package in the run's process,
without a network.
"""

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from json_files import changed_json, read_json
from PIL import Image
from processes import PACKAGE, run
from support import SHAPES, captions_of, rows_of

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
IMAGES = ["1000000", "1000001", "1000002"]
AXES = {"epoch", "trainer/global_step", "seconds"}
OF_FILES = {"val/captions/nrows", "test/captions/nrows", "val/attention/count"}
"""Keys of those rows of the history that are tables and images."""


@dataclass
class Logged:
    """What a run file holds."""

    run: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    artifacts: list[Any] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)


def records(file):
    """The records of a run file: LevelDB's log format (blocks of 32 KiB) behind a header of seven
    bytes.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    content = file.read_bytes()
    assert content[:4] == b":W&B"
    start, whole = 7, b""
    while start < len(content):
        left = -start % 2**15
        if 0 < left < 7:  # no room for the header of another piece
            start += left
            continue
        length, kind = int.from_bytes(content[start + 4 : start + 6], "little"), content[start + 6]
        whole += content[start + 7 : start + 7 + length]
        start += 7 + length
        if kind in (1, 4):  # a whole record, or its last piece
            yield Record.FromString(whole)
            whole = b""


def values(items):
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def logged(file):
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


def run_files(folder):
    return sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime)


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """A run that asks for the checkpoint, with its test: what it prints, its folder, and what it
    logs.
    """
    home = tmp_path_factory.mktemp("home")
    ended = run(home, *RUN, "logger.wandb.log_model=true", **OFFLINE)
    (folder,) = (home / "runs").iterdir()
    (file,) = run_files(folder)
    return ended.stdout + ended.stderr, folder, logged(file)


def test_it_is_named_and_configured_and_has_the_checkpoint(trial):
    printed, folder, found = trial
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert (found.run.project, found.run.run_group) == ("captioning", "trial-spatial_transformer")
    assert found.run.display_name == folder.name == "trial-spatial_transformer-seed7"
    assert list(found.run.tags) == ["spatial_transformer", "shapes", "small_cnn"]
    assert found.run.run_id == (folder / "wandb_id").read_text()
    source = found.config["provenance"]
    assert found.config == config | {"provenance": source, "_wandb": found.config["_wandb"]}
    record = read_json(folder / "scores.json")
    assert source.items() <= record["provenance"].items() <= found.summary["provenance"].items()
    said = [line for line in printed.splitlines() if "wandb" in line]
    assert any("wandb sync" in line for line in said)
    assert [line for line in said if "warn" in line.lower() or "error" in line.lower()] == []
    (model,) = [artifact for artifact in found.artifacts if artifact.type == "model"]
    assert "best" in model.aliases
    (saved,) = model.manifest.contents
    same = Path(saved.local_path).read_bytes() == (folder / "checkpoints/best.ckpt").read_bytes()
    assert same  # pytest would take minutes to show the difference


def test_history_panels_and_summary(trial):
    """The history is that of the metrics file before the test, whose scores are in the summary,
    with the best of validations and the last of other values.
    """
    _, folder, found = trial
    history = [
        {key.replace("trainer/global_", ""): row[key] for key in row if key[0] != "_"}
        for row in found.history
        if not OF_FILES & row.keys()
    ]
    *trained, tested = rows_of(folder)
    assert history == trained
    names = {key.replace("global_step", "trainer/global_step") for row in history for key in row}
    for name in names - AXES - {"step"}:
        pattern = next(p for p in (name, f"{name.split('/')[0]}/*", "*") if p in found.metrics)
        axis = "epoch" if name.startswith("val/") else "trainer/global_step"
        assert found.metrics[pattern].step_metric == axis, name
    without = {f"val/BLEU-{n} (no brevity penalty)" for n in range(1, 5)}
    hidden = {name for name, metric in found.metrics.items() if metric.options.hidden}
    assert hidden == AXES | without
    assert without <= names

    validations = [row for row in trained if "val/nll" in row]
    assert len(validations) == 2
    for name in ("val/BLEU-1", "val/BLEU-4 (no brevity penalty)", "val/CIDEr"):
        assert found.summary[name] == {"max": max(row[name] for row in validations)}
    assert found.summary["val/nll"] == {"min": min(row["val/nll"] for row in validations)}
    assert found.summary["val/attention entropy"] == validations[-1]["val/attention entropy"]
    assert {name: found.summary[name] for name in tested if name.startswith("test/")} == {
        name: pytest.approx(value, rel=1e-6)
        for name, value in tested.items()
        if name.startswith("test/")
    }


def tables(found, split):
    """The rows of each table of a split as they go to W&B."""
    sent = []
    for artifact in found.artifacts:
        for entry in artifact.manifest.contents:
            if entry.path == f"{split}/captions.table.json":
                table = read_json(entry.local_path)
                sent.append(
                    [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
                )
    return sent


def test_tables_of_captions_at_every_validation_and_of_the_test(trial):
    _, folder, found = trial
    first, second = tables(found, "val")
    assert [row["epoch"] for row in first] == [1, 1, 1]
    assert [(row["image_id"], row["epoch"]) for row in second] == [
        (image, epoch) for image in IMAGES for epoch in (1, 3)
    ]
    assert all(len(row["references"].split("\n")) == 5 for row in second)
    # one panel, whose slider goes through the validations
    panels = [row for row in found.history if "val/attention/count" in row]
    assert [row["trainer/global_step"] for row in panels] == [15, 31]
    for panel, rows in zip(panels, (first, second[1::2]), strict=True):
        assert panel["val/attention/captions"] == [row["caption"] for row in rows]
        files = run_files(folder)[0].parent / "files"
        pictures = [(files / name).read_bytes() for name in panel["val/attention/filenames"]]
        assert len(set(pictures)) == 3
        # W&B shows a panel's pictures in one size
        assert len({Image.open(io.BytesIO(picture)).size for picture in pictures}) == 1

    (rows,) = tables(found, "test")
    for row, line in zip(rows, captions_of(folder), strict=True):
        told = {"image_id": str(line["image_id"]), "references": "\n".join(line["references"])}
        told |= {"caption": line["caption"], "attention": row["attention"], **line["scores"]}
        assert row == told
    assert [row["attention"] is not None for row in rows] == [True, True, False, False, False]


def test_a_resumed_run_is_the_same_one_and_has_its_checkpoint(trial):
    """Killed in its test, it saves no checkpoint any more."""
    _, folder, before = trial
    with changed_json(folder / "run.json") as record:
        del record["result"]
    changed = ["logger.wandb.log_model=true", "logger.wandb.offline=true"]  # may change
    run(folder.parents[1], *RUN, *changed, "callbacks.wandb.images=1", "resume=true")
    _, file = run_files(folder)
    resumed = logged(file)
    assert resumed.run.run_id == before.run.run_id
    assert [artifact.type for artifact in resumed.artifacts] == ["model", "run_table"]
    keys = {key.partition("/")[0] for row in resumed.history for key in row if key[0] != "_"}
    assert keys == {"test", "trainer"}
    assert resumed.config["folder"] == before.config["folder"]


SWEEP = yaml.safe_load((Path(PACKAGE) / "experiments" / "wandb_sweep.yaml").read_text())
PARAMETERS = {
    name: given.get("values") or [given["min"], given["max"]]
    for name, given in SWEEP["parameters"].items()
}
"""Every value of every parameter, of a range its ends."""


def command(choice):
    """The overrides that W&B's own agent gives for chosen values."""
    from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

    formats = create_sweep_command_args({"args": choice})
    _, _, module, name, *fixed, rest = SWEEP["command"]
    assert (module, name, rest) == ("-m", "captioning.run", "${args_no_hyphens}")
    return fixed + formats["args_no_hyphens"]


def test_a_run_that_a_sweep_has_started(tmp_path):
    """With the environment and the file that an agent makes; the run is the sweep's, by its id."""
    from wandb.sdk.lib.config_util import save_config_file_from_dict

    choice = {name: given[-1] for name, given in PARAMETERS.items()}
    parameters = str(tmp_path / "config.yaml")
    values = {name: {"value": value} for name, value in choice.items()}
    save_config_file_from_dict(parameters, values)
    agent = {"WANDB_SWEEP_ID": "s1", "WANDB_RUN_ID": "chosen", "WANDB_SWEEP_PARAM_PATH": parameters}
    small = [override for override in SHAPES if not override.startswith("model.")]
    run(tmp_path, *small, *command(values), **OFFLINE, **agent)
    (folder,) = (tmp_path / "runs").iterdir()
    found = logged(*run_files(folder))
    assert (found.run.run_id, found.run.sweep_id) == ("chosen", "s1")
    assert found.run.run_group == f"sweep-{choice['model']}_small"
    assert {name: found.config[name] for name in choice} == choice
    assert found.config["optimizer"]["lr"] == choice["optimizer.lr"]
