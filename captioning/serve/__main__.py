"""Serve a page for a browser: `captioning serve report=FOLDER`, or `checkpoint=FILE` to caption
images. It is for this machine alone unless `host` is set. Ctrl-C ends it.
"""

import signal
from collections.abc import Sequence
from typing import Annotated, Any, Self

from annotated_types import Interval
from pydantic import model_validator

from captioning.config.command import command, start, while_read
from captioning.config.settings import Settings
from captioning.config.types import PathText, between
from captioning.errors import Stopped
from captioning.machine import on_signal
from captioning.pretrained.named import PRETRAINED, check_checkpoint, checkpoint_path

Millions = Annotated[float, Interval(gt=0, le=1000)]


class UploadSettings(Settings):
    """Settings below `upload`."""

    megabytes: Millions
    """largest image file, in MB"""
    megapixels: Millions
    """largest image, in megapixels"""
    waiting: Annotated[int, between(0, 100)]
    """images that may wait in the queue; more are refused"""


class ServeSettings(Settings):
    """Settings of `captioning serve`."""

    report: PathText | None
    """a folder written by captioning report"""
    checkpoint: PathText | Sequence[PathText] | None
    """null: the bundled captioner; or RUN_FOLDER/checkpoints/best.ckpt; or several, shown next to
    each other
    """
    modules: Sequence[str]
    """your own modules with parts of the checkpoints, such as [show_tell]"""
    device: str
    """auto, cpu, cuda, cuda:1, ..."""
    host: str
    """only this machine; 0.0.0.0: everyone who can reach it"""
    port: Annotated[int, between(0, 65_535)]
    """0: any free port"""
    upload: UploadSettings

    @model_validator(mode="after")
    def _is_one_page(self) -> Self:
        if self.report and self.checkpoint not in (None, []):
            raise ValueError("report=FOLDER and checkpoint=FILE are two pages: give one of them")
        return self


@command("serve.yaml", ServeSettings)
def main(config: ServeSettings) -> None:
    """Print the page's address and serve it until a signal comes."""
    report = config.report
    from captioning.serve.server import PageServer, report_page  # packages of an extra

    routes, policy = _caption_page(config) if report is None else report_page(report)
    server = PageServer(routes, policy, config.host, config.port)
    stopped = []

    def stop(number: int) -> None:
        # no exception, which could be lost where the event loop is made
        stopped.append(number)
        server.should_exit = True

    with on_signal(stop):
        with while_read():
            whom = "" if server.local else ", to everybody who can reach this machine"
            print(f"serving {server.url}{whom}; Ctrl-C ends it", flush=True)
        server.run()
    for number in stopped:
        name = signal.Signals(number).name
        raise Stopped(f"\nstopped by {name}: the page is no longer served", number)


def _caption_page(config: ServeSettings) -> tuple[Sequence[Any], str]:
    named = config.checkpoint or PRETRAINED
    checkpoints = [named] if isinstance(named, str) else named
    for checkpoint in checkpoints:
        check_checkpoint("checkpoint", checkpoint)
    from captioning.serve import captions  # here, as PyTorch takes seconds

    paths = [checkpoint_path(checkpoint) for checkpoint in checkpoints]
    captioners = captions.load_captioners(paths, config.device, config.modules)
    return captions.upload_page(captions.CaptionUploads(captioners, **config.upload.plain))


if __name__ == "__main__":
    start(main)
