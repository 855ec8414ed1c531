"""What the start of a run on a large set costs: the first, later ones, and four at once.

python -m experiments.throughput.large OUTPUT FOLDER IMAGES CAPTIONS [FORMAT] [CODE]

A table of made-up captions is written to FOLDER, as `jsonl` or `csv`. For up to 100,000 images
there is an empty file of each. CODE is a clone of another commit to measure in the same way, of
which one start is enough where it keeps nothing.
"""

import json
import os
import random
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import torch

from captioning.files import write_json
from experiments.throughput.measure import describe_machine

WORDS, FILES_OF, WITH_FILES = 20_000, 1000, 100_000
PROCESSES = 4
START = """
import inspect, json, resource, statistics, sys, threading, time
from pathlib import Path
import numpy as np
import captioning.training.setup
from captioning.data import example
from captioning.data.batch import BatchIndex
from captioning.data.dataset import CaptionDataset
from captioning.data.example import reference_words
from captioning.data.loader import BucketSampler
from captioning.data.readers.reading import run_reader
from captioning.data.readers.table import TableReader
from captioning.data.vocabulary import Vocabulary
try:
    from captioning.data.columns import data_digest
except ImportError:  # of older code
    from captioning.data.example import data_digest

def private():
    lines = [line.split() for line in open("/proc/self/smaps_rollup")]
    return sum(int(line[1]) for line in lines if line[0].startswith("Private_")) / 1e3

def own():
    lines = [line.split() for line in open("/proc/self/status")]
    return next(int(line[1]) for line in lines if line[0] == "RssAnon:") / 1e3

most = own()
def watch():
    global most
    while True:
        most = max(most, own())
        time.sleep(0.2)

threading.Thread(target=watch, daemon=True).start()
table, cache, images = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "True"
imports, begin = private(), time.process_time()
reader = TableReader(
    table.parent / "images", table, {"train": (0, 0.98), "val": (0.98, 0.99), "test": (0.99, 1)}
)
more = {"cache": cache} if "cache" in inspect.signature(run_reader).parameters else {}
splits = run_reader(reader, images, **more)
digest = data_digest(splits)
told = {"read": time.process_time() - begin, "digest": digest}
told["private after reading"] = private() - imports
vocabulary = Vocabulary.from_captions(reference_words(splits["train"]))
told["vocabulary"] = len(vocabulary)

class NoImages:
    def rows(self, indices):
        import torch
        return torch.zeros(len(indices), 1, 1)

dataset = CaptionDataset(splits["train"], NoImages(), vocabulary, 14, 5, True)
told["all"] = time.process_time() - begin
sampler = BucketSampler(dataset.lengths(), 64, True)
start = time.process_time()
batches = iter(sampler)
first = [next(batches) for _ in range(200)]
told["first order of an epoch"] = time.process_time() - start
spent = []
for batch in first:
    start = time.process_time()
    dataset[batch]
    spent.append(time.process_time() - start)
told["batch of 64, median"] = statistics.median(spent)
told["private"] = private() - imports
told["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
told["peak without mapped files"] = most
told["imports"] = imports
print(json.dumps(told), flush=True)
sys.stdin.read()
"""


def write_table(table: Path, images: int, captions: int) -> None:
    """Captions of 6 to 13 words, of which few are frequent, as in any language."""
    draw, files = random.Random(0), table.parent / "images"
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(WORDS)]
    weights = list(accumulate(1 / rank for rank in range(1, WORDS + 1)))
    with table.open("w") as file:
        if table.suffix == ".csv":
            file.write("image,caption\n")
        for number in range(images):
            name = f"{number // FILES_OF:05d}/{number:08d}.jpg"
            texts = [
                " ".join(draw.choices(words, cum_weights=weights, k=draw.randint(6, 13))) + "."
                for _ in range(captions)
            ]
            if table.suffix == ".csv":
                file.writelines(f"{name},{text.capitalize()}\n" for text in texts)
            else:
                file.write(json.dumps({"image": name, "caption": texts}) + "\n")
            if images <= WITH_FILES:
                path = files / name
                if number % FILES_OF == 0:
                    path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(path, os.O_CREAT))


def starts(code: str, table: Path, cache: Path, files: bool, count: int) -> list[dict[str, object]]:
    """So many processes at once, which stay until all have told what they cost."""
    command = [sys.executable, "-c", START, str(table), str(cache), str(files)]
    where = {**os.environ, "PYTHONPATH": code, "OMP_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    # the folder comes before the path of the environment
    processes = [
        subprocess.Popen(command, cwd=code, env=where, text=True, **pipes) for _ in range(count)
    ]
    told = [json.loads(process.stdout.readline()) for process in processes]  # type: ignore[union-attr]
    for process in processes:
        process.communicate()
    return told


def main(
    output: str, folder: str, images: str, captions: str, kind: str = "jsonl", code: str = "."
) -> None:
    table = Path(folder, f"{images}-{captions}.{kind}").absolute()
    if not table.exists():
        table.parent.mkdir(parents=True, exist_ok=True)
        write_table(table, int(images), int(captions))
    files, cache = int(images) <= WITH_FILES, table.with_suffix(".cache")
    counts = {"first": 1} if code != "." else {"first": 1, "second": 1, "at once": PROCESSES}
    measured = {
        what: starts(str(Path(code).absolute()), table, cache, files, count)
        for what, count in counts.items()
    }
    about = {"images": int(images), "captions of each": int(captions), "table": kind}
    about |= {"bytes of the table": table.stat().st_size, "files of images": files}
    about["bytes of the cache"] = sum(
        file.stat().st_size for file in cache.rglob("*") if file.is_file()
    )
    write_json(
        Path(output),
        {**about, "machine": describe_machine(torch.device("cpu")), "measured": measured},
    )
    print(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
