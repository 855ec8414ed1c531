"""Serve a page for a browser: `python -m captioning.serve report=FOLDER`, or `checkpoint=FILE` to
caption photographs.

For this machine alone unless `host` is set. Ctrl-C ends it.
"""

import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NoReturn

from annotated_types import Interval
from omegaconf import DictConfig

from captioning.config.command import command, start, while_read
from captioning.config.registry import CONF
from captioning.config.settings import check_table
from captioning.config.types import PathText
from captioning.download.named import PRETRAINED, check_checkpoint, checkpoint_path
from captioning.errors import CaptioningError, Stopped
from captioning.machine import on_signal
from captioning.serve.server import FolderHandler, Handler, Server, report_folder

SETTINGS: Mapping[str, Any] = {
    "report": PathText | None,
    "checkpoint": PathText | Sequence[PathText] | None,
    "modules": Sequence[str],
    "device": str,
    "host": str,
    "port": Annotated[int, Interval(ge=0, le=65_535)],
    "upload.megabytes": Annotated[float, Interval(gt=0, le=1000)],
    "upload.megapixels": Annotated[float, Interval(gt=0, le=1000)],
    "upload.waiting": Annotated[int, Interval(ge=0, le=100)],
}


@command(CONF / "serve.yaml", SETTINGS)
def main(config: DictConfig) -> None:
    """Print the page's address and serve it until a signal comes."""
    check_table(SETTINGS, config)
    report = config.report
    if report is not None and config.checkpoint not in (None, []):
        raise CaptioningError("report=FOLDER and checkpoint=FILE are two pages: give one of them")
    handler = (
        _captions(config)
        if report is None
        else partial(FolderHandler, directory=report_folder(report))
    )
    with Server(config.host, config.port, handler) as server:
        with while_read():
            whom = "" if server.local else ", to everybody who can reach this machine"
            print(f"serving {server.url}{whom}; Ctrl-C ends it", flush=True)
        with on_signal(_stop):
            server.serve_forever()


def _captions(config: DictConfig) -> Callable[..., Handler]:
    named = config.checkpoint or PRETRAINED
    given = [named] if isinstance(named, str) else list(named)
    for checkpoint in given:
        check_checkpoint("checkpoint", checkpoint)
    from captioning.serve.captions import (
        Captions,
        CaptionsHandler,
        load_captioners,
    )  # here, as PyTorch takes seconds

    captioners = load_captioners(
        [checkpoint_path(each) for each in given], config.device, list(config.modules)
    )
    return partial(CaptionsHandler, captions=Captions(captioners, **config.upload))


def _stop(number: int) -> NoReturn:
    raise Stopped(
        f"\nstopped by {signal.Signals(number).name}: the page is no longer served", number
    )


if __name__ == "__main__":
    start(main)
