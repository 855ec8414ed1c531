"""Score human captions of the same images in several languages, and measure their vocabularies.

    python experiments/languages_flickr8k/human.py FOLDER LANGUAGE[:TOKENS] ...

FOLDER is that of `data=flickr8k_languages`; `zh:characters` is `data.language=zh
data.tokens=characters`. On the test split, each reference in turn is scored against the others of
its image; the mean of these scores is printed. Vocabulary, share of unknown words and length are
those of the training captions.
"""

import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from captioning.data.example import reference_texts
from captioning.data.readers.reading import run_reader
from captioning.data.vocabulary import Vocabulary
from captioning.data.words import Language
from captioning.files import markdown_table
from captioning.metrics import SCORES, Scorer
from experiments.languages_flickr8k.languages import LanguagesReader

METRICS = ("BLEU", "METEOR", "ROUGE-L", "CIDEr")
NAMES = ("BLEU-4", *METRICS[1:])
LONGEST = 14


def sizes(splits: Any) -> dict[str, str]:
    """Of the training captions."""
    captions = [reference.words for example in splits["train"] for reference in example.references]
    vocabulary = Vocabulary.from_captions(captions)
    return {
        "words per caption": f"{fmean(map(len, captions)):.1f}",
        f"of more than {LONGEST} words "
        "(%)": f"{100 * fmean(len(words) > LONGEST for words in captions):.1f}",
        "different words": f"{len({word for words in captions for word in words}):,}",
        "vocabulary": f"{len(vocabulary):,}",
        "unknown words (%)": f"{100 * vocabulary.unknown(captions):.1f}",
    }


def scores(splits: Any, language: Language) -> dict[str, float]:
    """Means over the references that are scored; metrics that do not know the language are
    missing.
    """
    texts = reference_texts(splits["test"])
    found: list[dict[str, float]] = []
    for left in range(min(map(len, texts))):
        others = [[text for place, text in enumerate(each) if place != left] for each in texts]
        scorer = Scorer(others, METRICS, language=language)
        found.append(scorer.score({row: each[left] for row, each in enumerate(texts)}).corpus)
    print(*scorer.signatures.values(), sep="\n", file=sys.stderr)
    return {name: fmean(each[name] for each in found) for name in NAMES if name in found[0]}


def main(folder: Path, *chosen: str) -> None:
    """Print the table."""
    rows, heads = [], list[str]()
    for each in chosen:
        code, _, tokens = each.partition(":")
        language = Language(code, tokens or "words")
        files = {name: folder / f"captions_{name}.json" for name in ("de", "zh")}
        reader = LanguagesReader(folder / "images", folder / "dataset_flickr8k.json", files, code)
        splits = run_reader(reader, False, language)
        of_training, human = sizes(splits), scores(splits, language)
        heads = ["captions", *of_training, *(SCORES[name].heading for name in NAMES)]
        printed = [SCORES[name].printed(human[name]) if name in human else "" for name in NAMES]
        rows.append([f"{code}, {language.tokens}", *of_training.values(), *printed])
        print({split: len(examples) for split, examples in splits.items()}, file=sys.stderr)
    print(markdown_table(heads, rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
