"""Counted in processes of their own: page faults of arrays that are freed and made again."""

import os
import subprocess
import sys

import pytest
from processes import ENVIRONMENT

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
def test_memory_that_was_freed_is_used_again_without_a_fault() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    kept, left, chosen = map(int, done.stdout.split())
    each_time = 10 * 8  # at least, where all pages are huge ones
    assert kept < each_time / 4
    assert left >= each_time
    assert chosen >= each_time  # the user's choice
