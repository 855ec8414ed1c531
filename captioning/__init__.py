"""Compare image-captioning architectures under one data module, one decoder and one scorer."""

import os

# Large CPU tensors on huge pages: page faults otherwise take most of a training step where the kernel leaves huge
# pages to the program's request (`madvise`, the default of most distributions). PyTorch reads this at its first
# allocation; a value that the user has set stays.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
