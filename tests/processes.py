"""Fresh processes that do not import the libraries each, which takes seconds: forked off one that did nothing else."""

import multiprocessing

START = "forkserver"
PROCESSES = multiprocessing.get_context(START)
LIBRARIES = ("lightning", "torchmetrics", "torchvision", "hydra", "matplotlib.pyplot")
ROOMS = (
    "run",
    "evaluate",
    "predict",
    "captioner",
    "config.check",
    "training.selection",
    "runs.data_set",
    "report.panels",
)
PROCESSES.set_forkserver_preload([*LIBRARIES, *(f"captioning.{room}" for room in ROOMS)])
