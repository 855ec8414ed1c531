"""What a run or an evaluation prints at its end, read from its folder."""

from itertools import islice
from pathlib import Path

from captioning.data.caption_files import read_captions, read_references
from captioning.errors import one_line
from captioning.report.reading import read_record
from captioning.report.units import PAPERS, printed, unit

SHOWN = 3


def print_summary(folder: Path, title: str = "test score") -> None:
    """Prints a few captions with their references, where all of it lies, and last the scores under `title`.

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
    print(f"\n{title} (0-100; CIDEr x 100)")
    for name, value in scores.items():
        kind = unit(name)
        shown = f"{'-':>7}" if value is None else f"{printed(name, value):>7}  {'' if kind in PAPERS else kind.name}"
        print(f"{name:<32}{shown}".rstrip())
