"""Memory, cores and threads of a process, as a command leaves them to PyTorch."""

import os
import sys

import pytest
from processes import ENVIRONMENT, python

from captioning.machine import is_rank_zero, limit_threads, share_cores, share_gpu

PROGRAM = """
import os, resource
import torch
from captioning.machine import keep_memory

def faults():
    # an aligned array does not always fit where its like was freed, until the heap has room
    for _ in range(30):
        torch.ones(2**22)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(2**22)  # 16 MiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
small = {"MALLOC_MMAP_THRESHOLD_": "65536"}
for variables, prepare in ({}, keep_memory), ({}, int), (small, keep_memory):
    if os.fork() == 0:
        os.environ.update(variables)
        prepare()
        print(faults(), flush=True)
        os._exit(0)
    os.wait()
"""
HAS_GLIBC = sys.platform == "linux" and "CS_GNU_LIBC_VERSION" in os.confstr_names


@pytest.mark.skipif(not HAS_GLIBC, reason="glibc alone can be told")
def test_memory_that_was_freed_is_used_again_without_a_fault():
    done = python("-c", PROGRAM)
    kept, left, chosen = map(int, done.stdout.split())
    each_time = 10 * 8  # at least, where all pages are huge ones
    assert kept < each_time / 4
    assert left >= each_time
    assert chosen >= each_time  # the user's choice


@pytest.mark.skipif(not HAS_GLIBC, reason="libgomp and quotas are Linux's")
@pytest.mark.parametrize(
    "given, spins, threads",
    [
        ({}, "1000", None),  # PyTorch itself counts the cores of this machine
        ({"GOMP_SPINCOUNT": "7"}, "7", None),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, None, None),
        # as a quota of one core, for which the library looks where a test cannot write
        ({"LOKY_MAX_CPU_COUNT": "1"}, "1000", "1"),
        ({"LOKY_MAX_CPU_COUNT": "1", "OMP_NUM_THREADS": "3"}, "1000", "3"),
    ],
    ids=str,
)
def test_what_a_user_has_set_for_openmp_stays(given, spins, threads, monkeypatch):
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS", "LOKY_MAX_CPU_COUNT")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    share_cores()
    limit_threads()
    assert os.environ.get("GOMP_SPINCOUNT") == spins
    assert os.environ.get("OMP_WAIT_POLICY") == given.get("OMP_WAIT_POLICY")
    if threads == "1" and len(os.sched_getaffinity(0)) == 1:
        threads = None  # which is no limit here
    assert os.environ.get("OMP_NUM_THREADS") == threads


COMMAND = """
import os, subprocess, sys
import captioning

assert "GOMP_SPINCOUNT" not in os.environ
from captioning.config.command import command, start
from captioning.config.registry import CONF
from captioning.config.settings import Settings

@command(CONF / "report.yaml", Settings)
def main(config):
    assert "torch" not in sys.modules
    program = "import os; print(os.environ['GOMP_SPINCOUNT'])"
    print(subprocess.check_output([sys.executable, "-S", "-c", program], text=True))

start(main)
"""


@pytest.mark.skipif(not HAS_GLIBC, reason="libgomp is Linux's")
def test_a_command_and_its_processes_have_it_before_pytorch_is_loaded(tmp_path):
    (tmp_path / "command.py").write_text(COMMAND)
    given = {name: value for name, value in ENVIRONMENT.items() if name != "GOMP_SPINCOUNT"}
    done = python(tmp_path / "command.py", env=given)
    assert (done.returncode, done.stdout.split()) == (0, ["1000"]), done.stderr


def test_a_gpu_is_not_shared_if_its_daemon_does_not_start(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-cuda-mps-control"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    before = dict(os.environ)
    share_gpu()
    assert before == os.environ


@pytest.mark.parametrize(
    "launcher, first",
    [
        ({}, True),
        ({"LOCAL_RANK": "0", "NODE_RANK": "0"}, True),  # of Lightning
        ({"LOCAL_RANK": "0", "NODE_RANK": "1"}, False),
        ({"SLURM_PROCID": "2"}, False),
        ({"LOCAL_RANK": "1", "SLURM_PROCID": "0"}, False),  # Lightning in a job of one task
        # torchrun that srun starts once on each node: it numbers the nodes itself
        ({"RANK": "0", "LOCAL_RANK": "0", "SLURM_PROCID": "1"}, True),
        ({"RANK": "1", "LOCAL_RANK": "0", "SLURM_PROCID": "0"}, False),
    ],
)
def test_one_process_of_any_launcher_is_the_first(launcher, first, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    assert is_rank_zero() == first
