"""How fast threads compute that wait for each other by spinning or by sleeping.

python -m experiments.throughput.waiting OUTPUT              all work
python -m experiments.throughput.waiting OUTPUT LOOPS ...    one, beside endless loops

Each way to wait has a process of its own. They compute in turn, for `SECONDS` and at least one run;
the others sleep meanwhile.
"""

import functools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from captioning.files import write_json
from captioning.machine import cpuinfo

WAYS = {
    "default": {},
    "GOMP_SPINCOUNT=10000": {"GOMP_SPINCOUNT": "10000"},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
    "GOMP_SPINCOUNT=100": {"GOMP_SPINCOUNT": "100"},
    "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
    "OMP_NUM_THREADS=1": {"OMP_NUM_THREADS": "1"},
}
SMALL = ["model.size=small", "context.grid=[7,7]", "context.features=128", "vocab_size=40"]
SOFT = ["model=sat_soft", "model.d_hidden=512"]
WORK = {  # settings of `benchmark.yaml`, and whether it trains
    "training, small spatial transformer": ([*SMALL, "batch.images=8"], True),
    "training, soft attention": (SOFT, True),
    "beam 3, soft attention": (SOFT, False),
}
SECONDS, ROUNDS = 2.0, 5


def work() -> None:
    """Answer each line that names some work with its runs per second and the CPU time taken."""
    from experiments.throughput.material import composed
    from experiments.throughput.parts import decoding_variants, training_variants

    @functools.cache
    def prepare(name: str) -> Callable[[], object]:
        settings, trains = WORK[name]
        config = composed(*settings, "device=cpu")
        variants = (
            training_variants(config, "32-true") if trains else decoding_variants(config, 3, 16)
        )
        variants.ours()
        return variants.ours

    print("ready", flush=True)
    for line in sys.stdin:
        action = prepare(line.strip())
        runs, start, used = 0, time.monotonic(), time.process_time()
        while runs == 0 or time.monotonic() - start < SECONDS:
            action()
            runs += 1
        seconds = time.monotonic() - start
        print(runs / seconds, seconds, time.process_time() - used, flush=True)


def busy_seconds() -> float:
    """CPU time of all programs since the start of this machine."""
    user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def main(output: Path, loops: list[int]) -> None:
    clean = {key: x for key, x in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    processes = {}
    for way, variables in WAYS.items():
        processes[way] = subprocess.Popen(
            [sys.executable, __file__],
            env=clean | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert processes[way].stdout.readline() == "ready\n"
    (cpu,) = {line for line in cpuinfo().splitlines() if line.startswith("model name")}
    machine = {"cpu": cpu.partition(": ")[2], "cores": len(os.sched_getaffinity(0))}
    measured = []
    for number in loops or [0]:
        beside = [subprocess.Popen([sys.executable, "-c", "while 1: 0"]) for _ in range(number)]
        try:
            for name in list(WORK)[: 1 if loops else None]:
                rates, load = {way: [] for way in WAYS}, {way: [] for way in WAYS}
                for turn in range(1 + ROUNDS):  # the first is to warm up
                    for way, process in processes.items():
                        before = busy_seconds()
                        print(name, file=process.stdin, flush=True)
                        rate, seconds, own = map(float, process.stdout.readline().split())
                        if turn:
                            rates[way].append(rate)
                            load[way].append((busy_seconds() - before - own) / seconds)
                row = {"loops": number, "work": name, "runs a second": rates}
                measured.append(row | {"cores taken by other programs": load})
                write_json(output, {"machine": machine, "measured": measured})
                usual = statistics.median(rates["default"])
                print(f"{name}, {number} loops")
                for way, values in rates.items():
                    middle, others = statistics.median(values), statistics.median(load[way])
                    print(
                        f"  {way:24} {middle:8.3g} a second  {middle / usual:.2f}x, others take "
                        f"{others:.2f} cores",
                        flush=True,
                    )
        finally:
            for loop in beside:
                loop.kill()
    for process in processes.values():
        process.stdin.close()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        work()
    else:
        main(Path(sys.argv[1]), [int(number) for number in sys.argv[2:]])
