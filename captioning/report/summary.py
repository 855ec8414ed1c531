"""Printed results of a run or an evaluation, read from its folder."""

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from captioning.data.readers.captions import read_captions, read_references
from captioning.errors import one_line
from captioning.files import write_text
from captioning.metrics.scorer import BLEU_ALONE, HEADLINE, MAIN, score_called
from captioning.report.runs import read_record
from captioning.report.tables import markdown_table

SHOWN = 3
VIEWS = "views.md"
COLUMNS_OF_VIEWS = (HEADLINE, "repeated", "unseen pairs", "first word entropy", "word entropy")


def print_summary(folder: Path, title: str = "test score") -> None:
    """Print captions with their references, where the files are, and the scores, the main ones last under `title`."""
    file = folder / "captions.jsonl"
    scores, captions = read_record(folder / "scores.json").scores, read_captions(file)
    references = read_references(file, bare=True)
    for image_id, caption in islice(captions.items(), SHOWN):
        print(f"\n{one_line(f'image {image_id}: {caption}')}")
        for reference in references[image_id]:
            print(f"    {one_line(f'reference: {reference}')}")
    print(f"\nrun folder: {folder}")
    if (folder / "attention").is_dir():
        print(f"pictures of attention: {folder / 'attention'}")
    main = {name: value for name, value in scores.items() if score_called(name).group in (MAIN, BLEU_ALONE)}
    others = {name: value for name, value in scores.items() if name not in main}
    scales = f"0-100; {HEADLINE} {score_called(HEADLINE).unit}" if HEADLINE in main else "0-100"
    for heading, found in (("also measured", others), (f"{title} ({scales})", main)):
        if found:  # without references there are no main scores
            print(f"\n{heading}")
        for name, value in found.items():
            score = score_called(name)
            printed = "-" if value is None else score.printed(value)
            unit = "" if value is None or name in main else score.unit
            print(f"{name:<32}{printed:>7}  {unit}".rstrip())


def print_comparison(folder: Path) -> None:
    """Print for every score the difference from other captions with its interval and p-value."""
    record = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    print(f"\nagainst {record['against']['file']}, {record['images']} images, {record['samples']} bootstrap samples\n")
    print(f"{'':<32}{'these':>7}{'others':>8}{'difference':>12}{'95 % interval':>18}{'p':>8}")
    for name, row in record["scores"].items():
        ours, theirs = (score_called(name).printed(row[each]) for each in ("ours", "theirs"))
        interval = f"[{row['low']:+z.1f}, {row['high']:+z.1f}]"
        print(f"{name:<32}{ours:>7}{theirs:>8}{row['difference']:>+z12.1f}{interval:>18}{row['p']:>8.3f}")


def print_views(folder: Path) -> None:
    """Write the scores of all views of the photographs as `views.md`, and print them."""
    table = views_table(read_record(folder / "scores.json").views)
    text = f"How the system holds off its training photographs\n\n{table}"
    write_text(folder / VIEWS, f"# {text}\n")
    print(f"\n{text}")


def views_table(views: Mapping[str, Mapping[str, float | None]]) -> str:
    """A row for each view and a column for each of `COLUMNS_OF_VIEWS` that any of them has, as Markdown."""
    known = [name for name in COLUMNS_OF_VIEWS if any(found.get(name) is not None for found in views.values())]
    columns = [score_called(name) for name in known]
    rows = []
    for view, found in views.items():
        values = [found.get(column.name) for column in columns]
        rows.append([view, *("" if v is None else c.printed(v) for c, v in zip(columns, values, strict=True))])
    return markdown_table(["view", *(column.heading for column in columns)], rows)
