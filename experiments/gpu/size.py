"""Table 1 on synthetic features of COCO's size, and feature extraction: `python size.py FILE`."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cases import Rows, Worker, stage_arguments

PUBLISHED: dict[str, Any] = {
    "splits": {"train": 113_287, "val": 5_000, "test": 5_000},
    "systems": [
        ("spatial_transformer", 256),
        ("sat_soft", 256),
        ("sat_hard", 256),
        ("spatial_transformer", 32),
    ],
    "settings": ["backbone.weights=null", "data.eval_batch_size=500", "data.num_workers=8"],
    "row bytes": 196 * 512 * 2,
    "photographs": (12_800, 128, (640, 480)),
    "backbone": ["backbone=vgg11", "backbone.weights=null"],
    "longest": 60.0,
    "table 1": {"images a batch": 256, "seeds": 3, "epochs": 30},
}
SMALL: dict[str, Any] = {
    "splits": {"train": 48, "val": 8, "test": 4},
    "systems": [("spatial_transformer", 16), ("sat_hard", 16)],
    "settings": [
        "model.size=small",
        *(
            "backbone=small_cnn",
            "backbone.trainable=false",
            "backbone.size=32",
            "backbone.grid=4",
            "backbone.dim=8",
        ),
        *("data.eval_batch_size=8", "data.num_workers=1", "data.vocabulary.min_count=1"),
    ],
    "row bytes": 16 * 8 * 2,
    "photographs": (24, 4, (80, 60)),
    "backbone": [
        "backbone=small_cnn",
        "backbone.trainable=false",
        "backbone.size=32",
        "backbone.grid=4",
    ],
    "longest": 60.0,
    "table 1": {"images a batch": 16, "seeds": 3, "epochs": 30},
}
"""`systems` with images a batch; of `photographs` their number, how many differ, and their width
and height.
"""
MAKING = 90.0  # seconds that the files may take
STARTING = 40.0  # seconds in which all runs start and read captions
FIRST, LAST = 45.0, 20.0  # seconds of the first run's training and decoding, and of the features
BESIDE, SHORTEST = 12.0, 8.0  # seconds of a run's decoding, and the fewest of its training


class Run:
    """A training on the made-up data, `captioning run` in a process of its own."""

    def __init__(
        self, folder: Path, settings: list[str], system: str, batch: int, seconds: float | None
    ) -> None:
        self.system, self.batch = system, batch
        self.output = folder / f"{system}-{batch}.json"
        self.turn = self.output.with_suffix(".turn")
        limit = [] if seconds is None else [f"+trainer.max_time.seconds={seconds:.0f}"]
        profiler = {"_target_": "watch.Watch", "output": self.output, "turn": self.turn}
        command = [
            sys.executable,
            "-m",
            "captioning.run",
            *settings,
            f"model={system}",
            f"data.batch_size={batch}",
        ]
        command += [
            f"name=batch{batch}",
            *limit,
            *(f"+trainer.profiler.{k}={v}" for k, v in profiler.items()),
        ]
        path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        # a session of its own, to be ended with its loading processes
        self.process = subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": path}, start_new_session=True
        )

    @property
    def is_ready(self) -> bool:
        """Whether it waits for its turn, or has ended."""
        return self.output.with_suffix(".ready").exists() or self.process.poll() is not None

    def wait(self, deadline: float) -> dict[str, Any]:
        """What it has measured, once it has ended."""
        try:
            status = self.process.wait(max(1.0, deadline - time.monotonic()))
            how = f"ended with status {status}"
        except subprocess.TimeoutExpired:
            how = "did not end in time"
        self.end()
        if self.output.exists():
            return {"run": how, **json.loads(self.output.read_text())}
        return {"error": f"the run {how}"}

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def settings_of(sizes: dict[str, Any], folder: Path, device: str) -> list[str]:
    trainer = "gpu" if device == "cuda" else "cpu"
    return [
        *(
            "experiment=table1",
            f"data.root={folder / 'coco'}",
            f"cache={folder / 'cache'}",
            f"runs={folder / 'runs'}",
        ),
        *(
            f"trainer={trainer}",
            "trainer.max_epochs=1",
            "seed=1",
            "test=false",
            "decoding.beam_widths=null",
        ),
        *("metrics.val=[BLEU,ROUGE-L,CIDEr]", *sizes["settings"]),
    ]


def make_coco(case: dict[str, Any]) -> dict[str, Any]:
    """Files of the data set; the process has all cores."""
    from coco import make
    from hydra import compose, initialize_config_dir

    from captioning.config.registry import CONF

    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", [*case["settings"], "model=spatial_transformer"])
    made = make(config, case["splits"], os.cpu_count() or 1)
    return {
        "images": sum(case["splits"].values()),
        "seconds of captions": made["captions"],
        "seconds of features": made["features"],
        "GB": made["bytes"] / 1e9,
        "GB/s": made["bytes"] / 1e9 / made["features"],
        "in": case["folder"],
    }


def make_features(case: dict[str, Any]) -> dict[str, Any]:
    """A cache of features of photographs, by this machine's cores and its GPU."""
    from coco import photographs

    from captioning.backbones.base import Backbone
    from captioning.config.registry import build
    from captioning.features.build import FeatureStore
    from experiments.throughput.material import composed, plain

    config = composed(*case["backbone"], f"device={case['device']}")
    number, different, (width, height) = case["photographs"]
    folder = Path(case["folder"]) / "photographs"
    folder.mkdir()
    files = photographs(folder, different, width, height)
    paths = [folder / f"{i}.jpeg" for i in range(number)]
    for i, path in enumerate(paths):
        os.link(files[i % different], path)
    backbone = build("backbone", Backbone, plain(config)["backbone"], None).to(case["device"])
    FeatureStore(Path(case["folder"]) / "warm-up").computed(backbone, files, "photographs")
    begin = time.perf_counter()
    FeatureStore(Path(case["folder"])).computed(backbone, paths, "photographs")
    seconds = time.perf_counter() - begin
    return {
        "images": number,
        "pixels": f"{width} x {height}",
        "seconds": seconds,
        "images/s": number / seconds,
    }


def row_of(sizes: dict[str, Any], run: Run, found: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a run; an epoch that was not trained to its end is extrapolated from its
    steps.
    """
    row = {"what": "epoch", "system": run.system, "images a batch": run.batch}
    if "error" in found:
        return row | found
    steps, every = int(found["steps"]), math.ceil(sizes["splits"]["train"] / run.batch)
    if not steps:
        return row | {"error": "no step was trained"}
    return row | {
        "run": found["run"],
        "steps": steps,
        "steps of an epoch": every,
        "extrapolated": steps < every,
        "seconds of an epoch": found["seconds"] * every / steps,
        "images/s": steps * run.batch / found["seconds"],
        "waiting for data": found["seconds of waiting"] / found["seconds"],
        "images decoded": sizes["splits"]["val"],
        "seconds of decoding": found["seconds of decoding"],
        "seconds of scoring": found["seconds of scoring"],
        "GPU memory GB": found["GPU memory"] / 1e9,
        "memory GB": found["memory"] / 1e9,
    }


@contextmanager
def scratch(needed: int) -> Iterator[Path]:
    """A folder in memory where there is plenty of it, else among temporary files (TMPDIR); deleted
    afterwards.
    """
    memory, shared = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"), Path("/dev/shm")
    roomy = (
        shared.is_dir() and shutil.disk_usage(shared).free > 1.5 * needed and memory > 2.5 * needed
    )
    with tempfile.TemporaryDirectory(dir=shared if roomy else None, prefix="captioning-") as name:
        yield Path(name)


def fitting(sizes: dict[str, Any], folder: Path) -> dict[str, int]:
    """The splits, made smaller by the same factor where `folder` has no room for them."""
    needed = sum(sizes["splits"].values()) * sizes["row bytes"]
    share = min(1.0, 0.8 * shutil.disk_usage(folder).free / needed)
    return {split: max(1, int(share * count)) for split, count in sizes["splits"].items()}


def is_whole(row: dict[str, Any]) -> bool:
    """Tell whether it is of an epoch that was trained to its end."""
    return row["what"] == "epoch" and row.get("extrapolated") is False


def table_1(sizes: dict[str, Any], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Seconds of all runs of Table 1 by the sum of their epochs and validations."""
    case = sizes["table 1"]
    batch, times = case["images a batch"], case["seeds"] * case["epochs"]
    found = {row["system"]: row for row in rows if "seconds of an epoch" in row}
    found = {name: row for name, row in found.items() if row["images a batch"] == batch}
    systems = [system for system, images in sizes["systems"] if images == batch]
    if missing := set(systems) - set(found):
        return {"what": "Table 1", "error": f"no epoch of {', '.join(sorted(missing))}"}
    parts = ("seconds of an epoch", "seconds of decoding", "seconds of scoring")
    each = {name: times * sum(row[part] for part in parts) for name, row in found.items()}
    whole = all(map(is_whole, found.values()))
    return {"what": "Table 1", **case, "whole epochs": whole, **each, "seconds": sum(each.values())}


def measure(
    sizes: dict[str, Any],
    device: str,
    deadline: float,
    rows: Rows,
    before: Sequence[dict[str, Any]],
) -> None:
    """Measure what `before`, the rows of an earlier call, has no whole epoch of."""
    needed = sum(sizes["splits"].values()) * sizes["row bytes"]
    with scratch(needed) as folder:
        sizes = sizes | {"splits": fitting(sizes, folder)}
        settings = settings_of(sizes, folder, device)
        case = {
            "settings": settings,
            "splits": sizes["splits"],
            "folder": str(folder),
            "device": device,
        }
        rows.add(
            {"what": "files"} | alone(make_coco, case, min(MAKING, deadline - time.monotonic()))
        )
        if "error" in rows.rows[-1]:
            return
        kept = {(row["system"], row["images a batch"]): row for row in before if is_whole(row)}
        for row in kept.values():
            rows.add(row)
        measured = [run for run in sizes["systems"] if run not in kept]
        if measured:
            train(sizes, measured, settings, folder, deadline, rows)
        rows.add(table_1(sizes, rows.rows))
        making = {"backbone": sizes["backbone"], "photographs": sizes["photographs"]} | case
        rows.add({"what": "features"} | alone(make_features, making, deadline - time.monotonic()))


def train(
    sizes: dict[str, Any],
    systems: Sequence[tuple[str, int]],
    settings: list[str],
    folder: Path,
    deadline: float,
    rows: Rows,
) -> None:
    """The first for an epoch, the others for as long as there is time; each alone."""
    first, *others = systems
    left = deadline - time.monotonic() - STARTING - FIRST - LAST
    others = others[: max(2, int(left / (BESIDE + SHORTEST)))]
    seconds = min(sizes["longest"], max(SHORTEST, left / max(1, len(others)) - BESIDE))
    runs = [Run(folder, settings, *first, None)]
    runs += [Run(folder, settings, system, batch, seconds) for system, batch in others]
    # they read captions at once, which takes longer than to train
    while not all(run.is_ready for run in runs) and time.monotonic() < deadline:
        time.sleep(0.2)
    for run in runs:
        run.turn.touch()
        rows.add(row_of(sizes, run, run.wait(deadline)))


def alone(function: Any, case: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The result of a function in a process of its own."""
    worker = Worker(function, [case], "spawn")
    try:
        return worker.next(seconds)
    finally:
        worker.end()


def main() -> None:
    given = stage_arguments(__doc__, 240.0)
    sizes = PUBLISHED if given.size == "published" else SMALL
    path = given.file.with_name("size.before.json")
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    deadline = time.monotonic() + given.seconds
    measure(sizes, given.device, deadline, Rows(given.file), before)


if __name__ == "__main__":
    main()
