"""Large arrays in memory that the process already has.

By default glibc returns every large array to the system when it is freed, so that each step of training faults in, and
the system clears, the same gigabytes again: about a tenth of a step on a CPU.
"""

import ctypes
import os

# From glibc's malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
LARGEST_THRESHOLD = 32 * 2**20
"""glibc takes none above this; arrays beyond it are still returned when freed."""


def keep_memory() -> None:
    """Makes this process keep what it frees, up to 32 MiB a piece. Does nothing without glibc.

    What the user has set (glibc's `MALLOC_..._` variables) stays.
    """
    if any(name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGEST_THRESHOLD)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
