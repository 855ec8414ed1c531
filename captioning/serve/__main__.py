"""Serve a page for a browser: `python -m captioning.serve report=FOLDER`, or `checkpoint=FILE` to
caption photographs.

For this machine alone unless `host` is set. Ctrl-C ends it.
"""

import signal
from collections.abc import Mapping, Sequence
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
    from captioning.serve.server import PageServer, report_page  # packages of an extra

    routes, policy = _caption_page(config) if report is None else report_page(report)
    server = PageServer(routes, policy, config.host, config.port)
    with while_read():
        whom = "" if server.local else ", to everybody who can reach this machine"
        print(f"serving {server.url}{whom}; Ctrl-C ends it", flush=True)
    with on_signal(_stop):
        server.run()


def _caption_page(config: DictConfig) -> tuple[Sequence[Any], str]:
    named = config.checkpoint or PRETRAINED
    checkpoints = [named] if isinstance(named, str) else list(named)
    for checkpoint in checkpoints:
        check_checkpoint("checkpoint", checkpoint)
    from captioning.serve import captions  # here, as PyTorch takes seconds

    paths = [checkpoint_path(checkpoint) for checkpoint in checkpoints]
    captioners = captions.load_captioners(paths, config.device, list(config.modules))
    return captions.caption_page(captions.CaptionUploads(captioners, **config.upload))


def _stop(number: int) -> NoReturn:
    raise Stopped(
        f"\nstopped by {signal.Signals(number).name}: the page is no longer served", number
    )


if __name__ == "__main__":
    start(main)
