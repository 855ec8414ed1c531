"""Reader of MSR-VTT's JSON files.

Layout: `{"videos": [{"video_id", "split"}, ...], "sentences": [{"video_id", "caption"}, ...]}`.
Source: Xu et al., "MSR-VTT: A Large Video Description Dataset for Bridging Video and Language",
2016.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator

from captioning.config.types import UserPath, validated_class
from captioning.data.example import SPLITS, Split
from captioning.data.readers.ids import captions_by_image
from captioning.data.readers.parsing import Text, at, or_skip, read_json
from captioning.data.readers.reading import (
    FailFastList,
    FileName,
    ReadSplits,
    SourceFile,
    check_splits,
    make_example,
    split_called,
)

NAME = "the layout of MSR-VTT's videodatainfo.json (data=msrvtt)"


@dataclass
class _Video:
    video_id: FileName
    split: Annotated[Split, BeforeValidator(split_called)]


@dataclass(slots=True)
class _Caption:
    video_id: FileName
    caption: Text


@dataclass
class _File:
    videos: FailFastList[_Video]
    sentences: FailFastList[_Caption]


@validated_class
class MsrVttReader:
    """Clips with captions, of one or more files.

    A clip's id is its `video_id`. The words are `split_words(caption)`; captions without words are
    left out.

    Args:
        root: folder of the clips; a clip is `root/video_id`, of which only `backbone=frames` reads
            the frames.
        annotations: the JSON files.
    """

    root: UserPath
    annotations: Sequence[SourceFile]

    def __call__(self) -> ReadSplits:
        """Read `train`, `val` and `test`, in the files' order."""
        splits: ReadSplits = {split: [] for split in SPLITS}
        for path in self.annotations:
            file = read_json(path, _File, NAME)
            captions = ((entry.video_id, entry.caption) for entry in file.sentences)
            with at(path):
                ids = (video.video_id for video in file.videos)
                texts = captions_by_image(ids, captions, "sentences")
                for video in file.videos:
                    with or_skip():
                        key = video.video_id
                        example = make_example(key, (self.root / key,), texts[key])
                        splits[video.split].append(example)
        return check_splits(splits, *self.annotations)
