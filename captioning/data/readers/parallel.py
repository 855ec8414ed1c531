"""Reader of parallel text, for translation: two files per split whose lines belong together."""

from pathlib import Path

from captioning.config.types import UserPath, validated_class
from captioning.data.example import SPLITS, Example, Reference
from captioning.data.readers.reading import FileName, OfEachSplit, ReadSplits
from captioning.data.readers.skipping import at
from captioning.errors import CaptioningError
from captioning.files import read_bytes


@validated_class
class ParallelReader:
    """Sentences of `root/NAME.SOURCE` with their translations in `root/NAME.TARGET`, in UTF-8.

    Words are what blanks separate. The id of a pair is its line number, from 1; lines that are
    blank in both files are left out.

    Args:
        splits: NAME of each of `train`, `val` and `test`.
    """

    root: UserPath
    source: FileName
    target: FileName
    splits: OfEachSplit[FileName]

    def __call__(self) -> ReadSplits:
        """Read `train`, `val` and `test`."""
        return {split: self._pairs(self.root / self.splits[split]) for split in SPLITS}

    def _pairs(self, name: Path) -> list[Example]:
        path, other = Path(f"{name}.{self.source}"), Path(f"{name}.{self.target}")
        sources, targets = _lines(path), _lines(other)
        if unpaired := sorted(sources.keys() ^ targets.keys()):
            raise CaptioningError(f"line {unpaired[0]} has words in only one of {path} and {other}")
        if not sources:
            raise CaptioningError(f"{path} has no sentences")
        examples = []
        for number, source in sources.items():
            words = targets[number]
            reference = Reference(" ".join(words), words)
            examples.append(Example(number, path, (reference,), source=source))
        return examples


def _lines(path: Path) -> dict[int, tuple[str, ...]]:
    """The words of each line by its number, without blank lines."""
    with at(path):
        lines = read_bytes(path).decode("utf-8-sig").split("\n")
    words = {number: tuple(line.split()) for number, line in enumerate(lines, start=1)}
    return {number: line for number, line in words.items() if line}
