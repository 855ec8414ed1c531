"""Results that a run or an evaluation prints at its end, from the files of its folder."""

from pathlib import Path

from captioning.errors import one_line
from captioning.files import write_text
from captioning.metrics.metric import BLEU_ALONE, MAIN
from captioning.metrics.table import HEADLINE, score_called
from captioning.report.runs import read_record
from captioning.report.tables import markdown_table
from captioning.runs.captions import read_records

SHOWN = 3  # captions that are printed
MOSTLY = 90  # percent of captions that should end by themselves (D)
VIEWS = "views.md"
COLUMNS_OF_VIEWS = (HEADLINE, "repeated", "unseen pairs", "first word entropy", "word entropy")


def print_summary(folder: Path, title: str = "test score") -> None:
    """Print scores, main ones first under `title`, captions with references, and file locations."""
    record = read_record(folder / "scores.json")
    groups = {name: score_called(name).group in (MAIN, BLEU_ALONE) for name in record.scores}
    scales = f"0-100; {HEADLINE} {score_called(HEADLINE).unit}" if HEADLINE in groups else "0-100"
    for heading, main in ((f"{title} ({scales})", True), ("also measured", False)):
        names = [name for name in groups if groups[name] == main]
        if names:  # without references there are no main scores
            print(f"\n{heading}")
        for name in names:
            score, value = score_called(name), record.scores[name]
            unit = "" if value is None or main else score.unit
            number = "-" if value is None else score.printed(value)
            print(f"{name:<32}{number:>7}  {unit}".rstrip())
    ended = record.scores.get("ended")
    if ended is not None and ended < MOSTLY:
        longest = record.provenance.decoding.get("max_length")
        print(
            f"\nwarning: {100 - ended:.0f} % of the captions did not end by themselves: "
            f"decoding.max_length={longest} cut them"
        )
    if signatures := record.provenance.signatures.values():
        print("", *signatures, sep="\n")
    for caption in read_records(folder)[:SHOWN]:
        print(f"\n{one_line(f'image {caption.image_id}: {caption.caption}')}")
        for reference in caption.references:
            print(f"    {one_line(f'reference: {reference}')}")
    print(f"\nrun folder: {folder}")
    if (folder / "attention").is_dir():
        print(f"pictures of attention: {folder / 'attention'}")


def print_views(folder: Path) -> None:
    """Write the known scores of all views of the photographs as `views.md`, a row per view, and
    print them.
    """
    views = read_record(folder / "scores.json").views
    columns = [
        score_called(name)
        for name in COLUMNS_OF_VIEWS
        if any(scores.get(name) is not None for scores in views.values())
    ]
    rows = []
    for view, scores in views.items():
        row = [view]
        for score in columns:
            value = scores.get(score.name)
            row.append("" if value is None else score.printed(value))
        rows.append(row)
    table = markdown_table(["view", *(score.heading for score in columns)], rows)
    text = f"Scores on changed photographs\n\n{table}"
    write_text(folder / VIEWS, f"# {text}\n")
    print(f"\n{text}")
