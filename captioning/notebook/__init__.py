"""Training, scoring and reporting from Python, such as from a notebook.

Settings are those of the command line, `"model=sat_soft"`; what is printed there is printed here.
"""

from collections.abc import Sequence
from typing import overload

from captioning import evaluate, run
from captioning.config.types import given_path
from captioning.errors import CaptioningError
from captioning.notebook.call import call
from captioning.notebook.results import Report, Tested, Trained, TrainedRuns
from captioning.report import __main__ as report

__all__ = ["Report", "Tested", "Trained", "TrainedRuns", "score", "train", "write_report"]


@overload
def train(*settings: str, seed: int = 1) -> Trained: ...
@overload
def train(*settings: str, seed: Sequence[int]) -> TrainedRuns: ...
def train(*settings: str, seed: int | Sequence[int] = 1) -> Trained | TrainedRuns:
    """Train a captioner and test it in this process, as `captioning run` does.

    The same call again continues a run that was stopped, and returns one that is finished.

        result = captioning.train("model=sat_soft", "data=csv", "data.root=my photographs")
        result.scores["CIDEr"], result.captions[0].caption, result.captioner()

    Args:
        settings: of `captioning run`, each as on its command line, also `--config-dir=FOLDER`;
            `resume=false` begins anew.
        seed: of the run, or of several runs, which are trained one after the other.

    Raises:
        CaptioningError: a setting or a file is wrong, another call is at work in this process, or
            the settings ask for several processes.
        KeyboardInterrupt: it was stopped; what is finished is kept.
    """
    if not isinstance(seed, int):
        return TrainedRuns(train(*settings, seed=each) for each in seed)
    return Trained(given_path(call(run.main, [*settings, f"seed={seed}"]).folder))


def score(*settings: str) -> Tested:
    """Score captions, or caption images and score them, as `captioning evaluate` does.

        captioning.score("captions=captions.jsonl", "references=references.json").scores
        captioning.score("checkpoint=best.ckpt", "data=flickr8k", "data.root=flickr8k")

    Args:
        settings: of `captioning evaluate`, each as on its command line.

    Raises:
        CaptioningError, KeyboardInterrupt: as `train`.
    """
    if "calibrate=true" in settings:
        raise CaptioningError("calibrate=true scores nothing: use captioning evaluate for it")
    return Tested(given_path(call(evaluate.main, settings).folder))


def write_report(*settings: str) -> Report:
    """Compare tested runs in tables, figures and a page, as `captioning report` does.

        captioning.write_report("runs=runs", "output=report")

    Args:
        settings: of `captioning report`, each as on its command line.

    Raises:
        CaptioningError, KeyboardInterrupt: as `train`.
    """
    return Report(given_path(call(report.main, settings).output))
