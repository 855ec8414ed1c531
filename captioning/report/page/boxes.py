"""Where data have boxes, as drawn scenes do: which words name something, and where it lies."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from captioning.data.example import Box
from captioning.data.shapes.dataset import read_annotations


def noun_boxes(photographs: Sequence[Path]) -> dict[Path, Mapping[str, list[Box]]]:
    """By photograph and word the boxes, in fractions of the photograph, of what the references call by that word.

    The boxes of `FOLDER/test/1.png` lie in `FOLDER/captions_test.json`; other data have none.
    """
    found: dict[Path, Mapping[str, list[Box]]] = {}
    for file in dict.fromkeys(path.parent.parent / f"captions_{path.parent.name}.json" for path in photographs):
        try:
            examples = read_annotations(file) if file.is_file() else []
        except (OSError, ValueError, KeyError, TypeError, IndexError):  # another program's, or damaged
            continue
        for example in examples:
            words: dict[str, dict[Box, None]] = {}
            for reference in example.references:
                for noun in reference.nouns:
                    words.setdefault(reference.words[noun.word], {})[noun.box] = None
            found[example.path] = {word: list(each) for word, each in words.items()}
    return found
