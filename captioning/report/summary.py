"""What a run or an evaluation prints at its end, read from its folder."""

from itertools import islice
from pathlib import Path

from captioning.data.readers.captions import read_captions, read_references
from captioning.errors import one_line
from captioning.metrics.scorer import BLEU_ALONE, HEADLINE, MAIN, score_called
from captioning.report.reading import read_record

SHOWN = 3


def print_summary(folder: Path, title: str = "test score") -> None:
    """Prints captions with their references, where all of it lies, and the scores, those of papers last under `title`.

    Raises:
        CaptioningError: a file of the folder is damaged.
    """
    file = folder / "captions.jsonl"
    scores, captions, references = (
        read_record(folder / "scores.json").scores,
        read_captions(file),
        read_references(file, bare=True),
    )
    for image_id, caption in islice(captions.items(), SHOWN):
        print(f"\n{one_line(f'image {image_id}: {caption}')}")
        for reference in references[image_id]:
            print(f"    {one_line(f'reference: {reference}')}")
    print(f"\nrun folder: {folder}")
    if (folder / "attention").is_dir():
        print(f"pictures of attention: {folder / 'attention'}")
    of_papers = {name: value for name, value in scores.items() if score_called(name).group in (MAIN, BLEU_ALONE)}
    others = {name: value for name, value in scores.items() if name not in of_papers}
    scales = "0-100; CIDEr x 100" if HEADLINE in of_papers else "0-100"
    for heading, found in (("also measured", others), (f"{title} ({scales})", of_papers)):
        if found:  # without references there are no scores of papers
            print(f"\n{heading}")
        for name, value in found.items():
            shown = "-" if value is None else score_called(name).printed(value)
            kind = "" if value is None or name in of_papers else score_called(name).unit
            print(f"{name:<32}{shown:>7}  {kind}".rstrip())
