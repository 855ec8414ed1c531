"""Reader of captions of one set of photographs in several languages.

Photographs, splits and English captions are in a Karpathy JSON; each further language has a JSON
`{file name: [captions]}`. Flickr8k has such captions in Chinese (Li et al., "Adding Chinese
Captions to Images", ICMR 2016) and, for the photographs that it shares with Flickr30k, in German
(Elliott et al., "Multi30K", 2016).
"""

from collections.abc import Mapping
from pathlib import Path

from captioning.config.types import validated
from captioning.data.example import Example
from captioning.data.readers import reading
from captioning.data.readers.karpathy import KarpathyReader
from captioning.data.readers.reading import FailFastList, FileName, Sentence, Text
from captioning.data.readers.skipping import at, or_skip
from captioning.data.words import ENGLISH, Code
from captioning.errors import CaptioningError

NAME = "a JSON object {file name: [captions]}"


class LanguagesReader:
    """The photographs that have captions in all languages, with those of one language.

    Args:
        root: folder of the photographs; a photograph is `root/filename`.
        annotations: the Karpathy JSON.
        captions: the file of each further language.
        language: whose captions are read.
    """

    @validated
    def __init__(
        self,
        root: str | Path,
        annotations: str | Path,
        captions: Mapping[Code, str | Path],
        language: Code = ENGLISH,
    ) -> None:
        self._english = KarpathyReader(root, annotations)
        self._files = {code: Path(file).expanduser() for code, file in captions.items()}
        self._language = language
        if language not in (ENGLISH, *captions):
            raise CaptioningError(
                f"language={language}: captions has no file for it, only for "
                f"{', '.join(captions) or 'none'}; add "
                f"data.reader.captions.{language}=FILE"
            )

    def __call__(self) -> dict[str, list[Example]]:
        """Read `train`, `val` and `test`; ids are those of the Karpathy JSON."""
        captions = {
            code: reading.read_json(f, dict[FileName, FailFastList[Text]], NAME)
            for code, f in self._files.items()
        }
        splits: dict[str, list[Example]] = {}
        for split, examples in self._english().items():
            common = [
                each
                for each in examples
                if all(each.path.name in found for found in captions.values())
            ]
            splits[split] = common
            if own := captions.get(self._language):
                with at(self._files[self._language]):
                    splits[split] = []
                    for each in common:
                        with or_skip():
                            sentences = map(Sentence, own[each.path.name])
                            splits[split].append(
                                reading.make_example(each.image_id, each.path, sentences)
                            )
        reading.check_splits(splits, ", ".join(map(str, self._files.values())))
        return splits
