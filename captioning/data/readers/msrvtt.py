"""Reader of MSR-VTT's JSON files.

Layout: `{"videos": [{"video_id", "split"}, ...], "sentences": [{"video_id", "caption"}, ...]}`.
Source: Xu et al., "MSR-VTT: A Large Video Description Dataset for Bridging Video and Language",
2016.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from captioning.config.types import validated
from captioning.data.example import SPLITS, Example
from captioning.data.readers import reading
from captioning.data.readers.reading import FailFastList, FileName, Sentence, Text
from captioning.data.readers.skipping import at, or_skip
from captioning.errors import CaptioningError

NAME = "the layout of MSR-VTT's videodatainfo.json (data=msrvtt)"
OURS = {"train": "train", "validate": "val", "test": "test"}


@dataclass(slots=True)
class _Video:
    video_id: FileName
    split: Literal["train", "validate", "test"]


@dataclass(slots=True)
class _Caption:
    video_id: FileName
    caption: Text


@dataclass(slots=True)
class _File:
    videos: FailFastList[_Video]
    sentences: FailFastList[_Caption]


class MsrVttReader:
    """Clips with captions, of one or more files.

    A clip's id is its `video_id`. The words are `split_words(caption)`; captions without words are
    left out.

    Args:
        root: folder of the clips; a clip is `root/video_id`, of which only `backbone=frames` reads
        the frames. annotations: the JSON files.
    """

    @validated
    def __init__(self, root: str | Path, annotations: Sequence[str | Path]) -> None:
        self.root = Path(root).expanduser()
        self.annotations = [Path(path).expanduser() for path in annotations]

    def __call__(self) -> dict[str, list[Example]]:
        """Read `train`, `val` and `test`, in the files' order."""
        splits: dict[str, list[Example]] = {split: [] for split in SPLITS}
        for path in self.annotations:
            file = reading.read_json(path, _File, NAME)
            with at(path):
                captions = reading.by_image(
                    (video.video_id, list[Sentence]()) for video in file.videos
                )
                for position, each in enumerate(file.sentences):
                    with or_skip():
                        if each.video_id not in captions:
                            raise CaptioningError(
                                f"sentences[{position}]: no video has the id {each.video_id!r:.200}"
                            )
                        captions[each.video_id].append(Sentence(each.caption))
                for video in file.videos:
                    with or_skip():
                        path, sentences = self.root / video.video_id, captions[video.video_id]
                        splits[OURS[video.split]].append(
                            reading.make_example(video.video_id, path, sentences)
                        )
        reading.check_splits(splits, ", ".join(map(str, self.annotations)))
        return splits
