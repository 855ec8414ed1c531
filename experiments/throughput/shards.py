"""Images in shards, as `data=hub` reads them: the start of a run, then batches by two workers.

python -m experiments.throughput.shards OUTPUT FOLDER IMAGES [SHARDS]

Tars of made-up JPEG files are written to FOLDER; the library `datasets` keeps its files there, too.
"""

import io
import json
import os
import random
import resource
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import datasets
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from captioning.backbones.images import ImageTransform
from captioning.data.columns import FirstPaths
from captioning.data.dataset import CaptionDataset, ImageFiles
from captioning.data.example import reference_words
from captioning.data.loader import BucketSampler, Loader
from captioning.data.readers.hub import HubReader
from captioning.data.readers.reading import run_reader
from captioning.data.rows import open_source
from captioning.data.vocabulary import Vocabulary
from captioning.files import write_json
from experiments.throughput.large import WORDS
from experiments.throughput.measure import describe_machine

WIDTH, HEIGHT, QUALITY, DIFFERENT = 128, 96, 85, 256
SIZE, BATCH, BATCHES, WORKERS, REPEATS = 224, 64, 40, 2, 3


def write_shards(folder: Path, images: int, shards: int) -> None:
    """Tars of NUMBER.jpg and NUMBER.txt; images repeat, captions hardly ever."""
    noise, draw, files = np.random.default_rng(0), random.Random(0), []
    for _ in range(DIFFERENT):
        coarse = noise.integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize((WIDTH, HEIGHT)), np.int16)
        pixels = (smooth + noise.integers(-12, 13, smooth.shape)).clip(0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=QUALITY)
        files.append(file.getvalue())
    for shard in range(shards):
        with tarfile.open(folder / f"{shard:05d}.tar", "w") as tar:
            for number in range(images * shard // shards, images * (shard + 1) // shards):
                words = [f"w{int(WORDS ** draw.random())}" for _ in range(draw.randint(6, 13))]
                text = f"{' '.join(words)}.".encode()
                for end, content in (("jpg", files[number % DIFFERENT]), ("txt", text)):
                    member = tarfile.TarInfo(f"{number:08d}.{end}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


def seconds(action: Callable[[], object]) -> dict[str, float]:
    """Wall-clock and CPU seconds of an action, with those of its workers, which end with it."""
    begin, before = time.perf_counter(), os.times()
    action()
    wall, after = time.perf_counter() - begin, os.times()
    return {"wall": round(wall, 3), "CPU": round(sum(after[:4]) - sum(before[:4]), 2)}


def memory() -> dict[str, float]:
    """MB of this process: private now, and at most, with pages of mapped files."""
    lines = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()]
    private = sum(int(line[1]) for line in lines if line[0].startswith("Private_"))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"private": private / 1e3, "peak": most / 1e3}


def rates(dataset: CaptionDataset, images: ImageFiles, first: int) -> dict[str, object]:
    """Seconds of batches by workers: as a run reads them, and of the same images decoded alone."""
    batches = list(BucketSampler(dataset.lengths(), BATCH, True, seed=first))[:BATCHES]
    paths = (images.paths[number] for batch in batches for number in batch.positions)
    contents = [open_source(path).__enter__().read() for path in paths]  # type: ignore[attr-defined]
    parts = [contents[begin : begin + BATCH] for begin in range(0, len(contents), BATCH)]

    def decoded(part: Sequence[bytes]) -> list[Tensor]:
        return [images.transform.read(Image.open(io.BytesIO(content))) for content in part]

    def passing(fetch: Callable[..., object], requests: Sequence[object]) -> Callable[[], object]:
        return lambda: sum(1 for _ in Loader(fetch, WORKERS, sampler=requests))

    actions = {
        "batches of a run": passing(dataset.__getitem__, batches),
        "images from memory": passing(lambda part: torch.stack(decoded(part)), parts),
        "decoding alone": passing(lambda part: len(decoded(part)), parts),
    }
    return {"images": len(contents)} | {what: seconds(action) for what, action in actions.items()}


def start(folder: Path, measured: bool) -> dict[str, object]:
    """Read in this process until the first batch is there; then perhaps the rates."""
    reader = HubReader(
        f"{folder}/*.tar", {name: name for name in ("train", "val", "test")}, folder / "datasets"
    )
    told: dict[str, object] = {"imports": memory()}
    begin = time.perf_counter()
    made: list[object] = []
    told["the library"] = seconds(reader.sources)
    told["after the library"] = memory()
    told["reading"] = seconds(lambda: made.append(run_reader(reader, cache=folder / "cache")))
    told["after reading"] = memory()
    train = made[0]["train"]  # type: ignore[index]
    vocabulary = Vocabulary.from_captions(reference_words(train))
    images = ImageFiles(FirstPaths(train), ImageTransform(SIZE))
    dataset = CaptionDataset(train, images, vocabulary, 14, 5, True)
    sampler = BucketSampler(dataset.lengths(), BATCH, True)
    next(iter(Loader(dataset.__getitem__, WORKERS, sampler=sampler)))
    told["seconds to the first batch"] = round(time.perf_counter() - begin, 2)
    told["after the first batch"] = memory()
    if measured:
        told["rates"] = [rates(dataset, images, repeat) for repeat in range(1, 1 + REPEATS)]
    return told


def main(output: str, folder: str, images: str, shards: str = "4") -> None:
    place = Path(folder).absolute()
    if not place.exists():
        place.mkdir(parents=True)
        write_shards(place, int(images), int(shards))
    where = {**os.environ, "HF_DATASETS_CACHE": str(place / "datasets")}
    measured = {}
    for what in ("first", "second"):
        command = [sys.executable, "-m", __spec__.name, "start", str(place), what]
        done = subprocess.run(command, env=where, text=True, stdout=subprocess.PIPE, check=True)
        measured[what] = json.loads(done.stdout)
    about = {"images": int(images), "shards": int(shards), "datasets": datasets.__version__}
    about |= {
        f"bytes of {what}": sum(file.stat().st_size for file in place.glob(files))
        for what, files in (("tars", "*.tar"), ("the library", "datasets/**/*.arrow"))
    }
    about["machine"] = describe_machine(torch.device("cpu"))
    write_json(Path(output), {**about, "measured": measured})
    print(json.dumps(measured, indent=1))


if __name__ == "__main__":
    if sys.argv[1] == "start":
        print(json.dumps(start(Path(sys.argv[2]), sys.argv[3] == "second")))
    else:
        main(*sys.argv[1:])
