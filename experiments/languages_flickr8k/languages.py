"""Reader of captions of one set of photographs in several languages.

Photographs, splits and English captions are in a Karpathy JSON; each further language has a JSON
`{file name: [captions]}`. Flickr8k has such captions in Chinese (Li et al., "Adding Chinese
Captions to Images", ICMR 2016) and, for the photographs that it shares with Flickr30k, in German
(Elliott et al., "Multi30K", 2016).
"""

from collections.abc import Mapping

from captioning.config.types import UserPath, validated_class
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.parsing import Text, at, or_skip, read_json
from captioning.data.readers.reading import (
    FailFastList,
    FileName,
    ReadSplits,
    SourceFile,
    check_splits,
    make_example,
)
from captioning.data.words import ENGLISH, Code
from captioning.errors import CaptioningError

NAME = "a JSON object {file name: [captions]}"


@validated_class
class LanguagesReader:
    """The photographs that have captions in all languages, with those of one language.

    Args:
        root: folder of the photographs; a photograph is `root/filename`.
        annotations: the Karpathy JSON.
        captions: the file of each further language.
        language: whose captions are read.
    """

    root: UserPath
    annotations: SourceFile
    captions: Mapping[Code, SourceFile]
    language: Code = ENGLISH

    def __post_init__(self) -> None:
        if self.language not in (ENGLISH, *self.captions):
            raise CaptioningError(
                f"language={self.language}: captions has no file for it, only for "
                f"{', '.join(self.captions) or 'none'}; add "
                f"data.reader.captions.{self.language}=FILE"
            )

    def __call__(self) -> ReadSplits:
        """Read `train`, `val` and `test`; ids are those of the Karpathy JSON."""
        layout = dict[FileName, FailFastList[Text]]
        captions = {code: read_json(file, layout, NAME) for code, file in self.captions.items()}
        english = KarpathyReader(self.root, self.annotations)()
        splits: ReadSplits = {split: [] for split in english}
        with at(self.captions.get(self.language, self.annotations)):
            for split, examples in english.items():
                for example in examples:
                    name = example.path.name
                    if not all(name in texts for texts in captions.values()):
                        continue
                    with or_skip():
                        if self.language != ENGLISH:
                            texts = captions[self.language][name]
                            example = make_example(
                                example.image_id, example.paths, texts, group=example.group
                            )
                        splits[split].append(example)
        return check_splits(splits, *self.captions.values())
