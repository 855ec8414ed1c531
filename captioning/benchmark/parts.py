"""The benchmark: its settings, and its parts whose inputs are in memory.

Each part yields its rows; what is timed runs in processes of its own, without Lightning, which
takes memory.
"""

import io
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from captioning.backbones import Backbone
from captioning.backbones.context import ContextSet
from captioning.benchmark import data_parts, material
from captioning.benchmark.measure import (
    CPU,
    DTYPES,
    Measurement,
    Run,
    Variants,
    ceilings,
    compare,
    gigabytes,
    isolated,
    line,
    machine,
    peak_of,
    table,
    timed,
)
from captioning.benchmark.naive import naive_beam, raw_scores, tokenized
from captioning.config.registry import check_part
from captioning.decoding import FORBIDDEN, beam_search, greedy
from captioning.errors import CaptioningError
from captioning.features.build import build_features
from captioning.files import write_json
from captioning.machine import device_called, has_bfloat16
from captioning.metrics import Scorer
from captioning.metrics.java import find_java
from captioning.models import Captioner
from captioning.tokens import EOS
from captioning.training.objectives import Objective

NO_BFLOAT16 = "left out: this CPU is slower in bfloat16"
NO_END = (*FORBIDDEN, EOS)  # never generated, so that every caption has the full length
KILOBYTES = 1 if sys.platform == "darwin" else 1024  # bytes in the unit of `getrusage`
LIBRARIES = "import torch"
LOADED = "captioning.load(CHECKPOINT)"
COMMANDS = {
    LIBRARIES: ["-c", LIBRARIES],
    "captioning --help": ["-m", "captioning", "--help"],
    "captioning run --help": ["-m", "captioning.run", "--help"],
    "captioning run data.root=nowhere": [
        "-m",
        "captioning.run",
        "data=flickr8k",
        "data.root=nowhere",
    ],
    "captioning evaluate captions=nowhere": [
        "-m",
        "captioning.evaluate",
        "captions=nowhere",
        "references=nowhere",
    ],
    "captioning report --help": ["-m", "captioning.report", "--help"],
    LOADED: ["-c", "import sys, captioning; captioning.load(sys.argv[1], 'cpu')"],
}


def startup(config: DictConfig) -> Iterator[Measurement]:
    """Fresh processes in turn; files lie in the page cache."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "c.ckpt"
        torch.save(material.built_checkpoint(config), checkpoint)
        commands = COMMANDS | {LOADED: [*COMMANDS[LOADED], str(checkpoint)]}
        actions = {name: partial(_python, arguments) for name, arguments in commands.items()}
        runs = {
            name: Run(1, seconds) for name, seconds in timed(actions, config.repeats, CPU).items()
        }
    for name, run in runs.items():
        note = (
            ""
            if name == LIBRARIES
            else f"{run.median - runs[LIBRARIES].median:+.2f} s beside `{LIBRARIES}`"
        )
        yield Measurement("startup", f"`{name}`", ours=run, note=note)


def _python(arguments: list[str]) -> None:
    # in an empty folder, where the package must be found as it was by this process
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *arguments]
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    refused = ended.returncode == 1 and ended.stderr.splitlines()[-1].startswith("error: ")
    assert ended.returncode == 0 or refused, ended.stderr


def training(config: DictConfig) -> Iterator[Measurement]:
    """Each precision, then the memory of a large batch."""
    images, captions, largest = (
        config.batch.images,
        config.batch.captions,
        config.memory.training_images,
    )
    for precision in config.precisions:
        row = Measurement("training", f"{precision}, {images} x {captions} captions")
        if precision == "bf16-mixed" and not has_bfloat16(device_called(config.device)):
            yield replace(row, note=NO_BFLOAT16)
            continue
        build = partial(_training, config, precision, images)
        row = replace(row, unit="captions", naive_peak=peak_of(build, "naive"))
        yield compare(row, build, 2 * (images * captions,), config.repeats)
    precision = config.precisions[0]
    peak = peak_of(partial(_training, config, precision, largest), "ours")
    yield Measurement(
        "training", f"{precision}, {largest} x {captions} captions, memory alone", peak=peak
    )


def _training(config: DictConfig, precision: str, images: int) -> Variants:
    device, step = device_called(config.device), material.training_step(config, precision)
    batch = material.random_batch(config, images, config.batch.captions).to(device)
    return Variants(
        partial(step, batch, False), partial(step, batch, True), device, DTYPES[precision]
    )


def decoding(config: DictConfig) -> Iterator[Measurement]:
    """Each width at each batch size, the naive search one image at a time; then memory by the
    number of batches.
    """

    def row(width: int, images: int) -> Measurement:
        return Measurement(
            "decoding", f"{'greedy' if width == 1 else f'beam {width}'}, batch {images}", "images"
        )

    for width in config.search.widths:
        naive_peak = peak_of(partial(_decoding, config, width, 1), "naive", 1)
        for images in config.search.batches:
            build = partial(_decoding, config, width, images)
            yield compare(
                replace(row(width, images), naive_peak=naive_peak),
                build,
                (images, 1),
                config.repeats,
            )
    width, images, few, many = (
        config.memory[key] for key in ("width", "images", "few_batches", "many_batches")
    )
    before, after = (
        peak_of(partial(_decoding, config, width, images), "ours", batches)
        for batches in (few, many)
    )
    note = f"after {many} batches; {gigabytes(before)} after {few}" if before else ""
    raw = {f"peak after {few} batches": before, f"peak after {many} batches": after}
    name = f"{row(width, images).name}, memory alone"
    yield Measurement("decoding", name, peak=after, note=note, raw=raw)


def _decoding(config: DictConfig, width: int, images: int) -> Variants:
    model, device, length = (
        material.built_model(config).eval(),
        device_called(config.device),
        config.search.max_length,
    )
    vectors, grid = (
        material.random_batch(config, images, captions=1).inputs.to(device),
        tuple(config.context.grid),
    )
    search: Callable[..., object] = greedy if width == 1 else partial(beam_search, width=width)
    ours = partial(search, model, ContextSet(vectors, grid), max_length=length, forbidden=NO_END)
    image = ContextSet(vectors[:1], grid)
    return Variants(ours, partial(naive_beam, model, image, width, length, NO_END), device)  # type: ignore[arg-type]


def backbone(config: DictConfig) -> Iterator[Measurement]:
    """A feature cache of photographs made for it; naively, one photograph after the other, a file
    for each.
    """
    number, (width, height) = config.photographs.number, config.photographs.size
    network = config.backbone.get("name") or config.backbone._target_.rpartition(".")[2]
    note = "memory without that of the decoding processes"
    row = Measurement(
        "backbone", f"{network}, {number} files of {width} x {height}", "images", note=note
    )
    with tempfile.TemporaryDirectory() as folder:
        build = partial(
            _backbone, config, material.photographs(Path(folder), number, width, height)
        )
        yield compare(
            replace(row, naive_peak=peak_of(build, "naive", 1)),
            build,
            (number, number),
            config.repeats,
        )


def _backbone(config: DictConfig, paths: Sequence[Path]) -> Variants:
    network = material.built_backbone(config)

    def ours() -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            redirect_stderr(io.StringIO()),
        ):  # the progress bar
            build_features(network, paths, Path(folder))

    def naive() -> None:
        with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
            for i, path in enumerate(paths):
                image = network.transform.read(path)[None].to(network.scale.device)
                torch.save(network(image)[0].half().cpu(), Path(folder) / f"{i}.pt")

    return Variants(ours, naive, device_called(config.device))


def scoring(config: DictConfig) -> Iterator[Measurement]:
    """Candidates are tokenised and scored; references are tokenised beforehand on both sides."""
    captions, references = config.scoring.captions, config.scoring.references
    row = Measurement("scoring", f"{captions:,} captions, {references} references each", "captions")
    row = compare(
        row, partial(_scoring, captions, references), (captions, captions), config.repeats, 0
    )
    (largest,) = row.raw.values()
    naive = f"naive: raw pycocoevalcap ({row.naive.median:.2f} s)" if row.naive else ""
    yield replace(row, note=f"{naive}; the largest Java process took {gigabytes(largest)}")


def _scoring(captions: int, each: int) -> Variants:
    made = material.sentences(captions, each + 1)
    candidates = {i: texts[0] for i, texts in enumerate(made)}
    references = [texts[1:] for texts in made]
    Scorer(references).score(candidates)  # whose METEOR ends here, and only then is counted
    largest = (
        KILOBYTES * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    )  # before the naive ones start
    scorer = Scorer(references)
    scorer.score(candidates)  # tokenises the references, and starts METEOR
    # pycocoevalcap starts whatever `java` is; it is to be the same one
    os.environ["PATH"] = os.pathsep.join([str(find_java().parent), os.environ.get("PATH", "")])
    given = tokenized({i: texts[1:] for i, texts in enumerate(made)})
    ours, naive = partial(scorer.score, candidates), partial(raw_scores, given, candidates)
    return Variants(ours, naive, CPU, None, raw={"peak of the largest Java process": largest})


PARTS: Mapping[str, Callable[[DictConfig], Iterator[Measurement]]] = {
    **{part.__name__: part for part in (startup, training, decoding, backbone)},
    **{part.__name__: part for part in (data_parts.cache, scoring, data_parts.coco)},
}


def check(config: DictConfig) -> None:
    """Refuse settings that would fail after minutes."""
    plain = material.plain(config)
    bases = {"backbone": Backbone, "model": Captioner, "objective": Objective}
    for part, base in bases.items():
        check_part(part, base, plain[part], None)
    check_part("optimizer", material.OPTIMIZER, plain["optimizer"], None)
    device_called(config.device)
    if config.output is not None and not Path(config.output).absolute().parent.is_dir():
        raise CaptioningError(
            f"output={config.output} cannot be written: its folder does not exist"
        )


def measure(config: DictConfig) -> None:
    """Measure the parts one by one, print and write their measurements as they come."""
    check(config)
    device = device_called(config.device)
    content: dict[str, Any] = {
        "settings": OmegaConf.to_container(config, resolve=True),
        "machine": machine(device),
        "ceilings": isolated(ceilings, device, config.repeats),
    }
    for title in ("machine", "ceilings"):
        shown = {
            name: f"{value:.4g}" if isinstance(value, float) else value
            for name, value in content[title].items()
        }
        print(f"{title}: " + "; ".join(f"{name} {value}" for name, value in shown.items()))
    measurements: list[Measurement] = []
    for name in config.parts:
        for measurement in PARTS[name](config):
            measurements.append(measurement)
            print(line(measurement), flush=True)
            if (
                config.output is not None
            ):  # after each, so that what took minutes is kept whatever comes
                content["measurements"] = [done.as_dict() for done in measurements]
                write_json(Path(config.output), content)
    print(f"\n{table(measurements)}")
