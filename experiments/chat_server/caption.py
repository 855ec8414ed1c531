"""Caption images with a model on a server of chats, for comparison.

`python -m experiments.chat_server.caption address=http://HOST/v1#MODEL images=FOLDER`

The images are those of a folder, or of a data set's split (`data=flickr8k data.root=FOLDER`). The
captions are a file that `captioning evaluate captions=FILE` and `captioning compare` read.
"""

import logging
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from captioning.config.command import command, start
from captioning.config.registry import CONF
from captioning.config.settings import Settings, check_folder, check_reader
from captioning.config.types import PartConfig, PathText, given_path
from captioning.data.columns import data_digest
from captioning.data.example import Example, Split, image_names, reference_texts
from captioning.data.image_files import read_folder
from captioning.errors import CaptioningError, quoted
from captioning.files import write_json
from captioning.pretrained.fetch import Unavailable
from captioning.progress import progress_bar
from captioning.runs.evaluation.captions import write_captions
from captioning.runs.evaluation.data_set import read_logged
from captioning.runs.provenance import commit, versions
from experiments.chat_server.chat import KEPT, UNASKED, Asking, Chat

HERE = Path(__file__).parent

log = logging.getLogger(__name__)


class SetSettings(Settings, extra="allow"):
    """Settings below `data`."""

    reader: PartConfig | None
    """of the data set"""


class CaptionSettings(Asking):
    """Settings of `caption.yaml`."""

    images: PathText | None
    """a folder of images, with its subfolders"""
    data: SetSettings
    split: Split
    """of the data set"""
    output: Annotated[str, Field(pattern=r"\.jsonl$")]
    """the file of captions; FILE.about.json beside it has the settings"""

    @model_validator(mode="after")
    def _has_images(self) -> Self:
        if (self.images is None) == (self.data.reader is None):
            raise CaptioningError("name what is captioned: images=FOLDER, or a data set by data=")
        if self.images is not None:
            check_folder("images", self.images)
        return self


@command(HERE / "caption.yaml", CaptionSettings)
def main(config: CaptionSettings) -> None:
    """Write the captions and a record; exit with 1 if an image has none."""
    examples, root = find_examples(config)
    to = config.place
    log.info("images are sent to %s, to its model %s: %d", to["server"], to["model"], len(examples))
    names, failed = image_names(examples, root), False
    reasons, lines = Counter[str](), []
    answers = Chat(config).captions([example.path for example in examples])
    bar = progress_bar("captions", len(examples), "image", iterable=answers)
    for example, name, texts, answer in zip(
        examples, names, reference_texts(examples), bar, strict=True
    ):
        if answer.problem:
            failed = True
            if answer.problem != UNASKED:  # of which there may be thousands
                log.warning("%s: %s", name, answer.problem)
        if not answer.captions:
            continue
        reasons.update([answer.problem] if answer.problem else [])
        lines.append((example.image_id, answer.captions, texts, name, example.group))
    if not lines or UNASKED in reasons or reasons.total() == len(lines):
        raise Unavailable(f"nothing is written without captions: {quoted(dict(reasons))}; {KEPT}")
    output = given_path(config.output)
    write_captions(output, *zip(*lines, strict=True))
    about = output.with_suffix(".about.json")
    write_json(
        about,
        {
            **{name: getattr(config, name) for name in Asking.model_fields},
            "images": len(lines),
            "data_digest": data_digest({config.split: examples}),
            "without_caption": reasons,
            "commit": commit(),
            "versions": versions(),
        },
    )
    print(output, about, sep="\n")
    if failed:
        sys.exit(1)


def find_examples(config: CaptionSettings) -> tuple[Sequence[Example], str | None]:
    """The images with their references, if they have any, and the folder that names count from."""
    if config.data.reader is None:
        alone, _ = read_folder(given_path(config.images), None)
        return alone, config.images
    data = config.data.plain
    reader = check_reader(data["reader"]).build()
    examples = read_logged(reader, True, data, None, (config.split,))[config.split]
    if any(example.source or example.further for example in examples):
        raise CaptioningError("data has no single images: a server is asked about one at a time")
    return examples, data["reader"].get("root")


if __name__ == "__main__":
    sys.argv[1:1] = ["--config-dir", str(CONF)]  # of the data sets
    start(main)
