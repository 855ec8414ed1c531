"""Counted in a process of its own: page faults of arrays that are freed and made again."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
from captioning.machine import keep_memory

if sys.argv[1] == "keep":
    keep_memory()
for _ in range(30):  # an aligned array does not always fit where its like was freed, until the heap has room beside it
    torch.ones(2**22)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones(2**22)  # 16 MiB
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
HAS_GLIBC = sys.platform == "linux" and "CS_GNU_LIBC_VERSION" in os.confstr_names


def faults(mode: str, **environment: str) -> int:
    command = [sys.executable, "-c", PROGRAM, mode]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not HAS_GLIBC, reason="glibc alone can be told")
def test_memory_that_was_freed_is_used_again_without_a_fault() -> None:
    each_time = 10 * 8  # at least, where all pages are huge ones
    assert faults("keep") < each_time / 4
    assert faults("leave") >= each_time
    assert faults("keep", MALLOC_MMAP_THRESHOLD_="65536") >= each_time  # the user's choice
