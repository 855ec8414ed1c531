"""Fresh processes that do not import the libraries each, which takes seconds: forked off one that did nothing else."""

import multiprocessing

START = "forkserver"
PROCESSES = multiprocessing.get_context(START)
PROCESSES.set_forkserver_preload(
    [
        *("lightning", "torchmetrics", "torchvision", "hydra", "matplotlib.pyplot"),
        *(f"captioning.{name}" for name in ("work.run", "work.evaluate", "work.predict", "models", "decoding")),
    ]
)
