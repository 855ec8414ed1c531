"""Results that a run or an evaluation prints at its end, from the files of its folder."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from captioning.errors import one_line
from captioning.files import markdown_table, write_text
from captioning.metrics.metric import BLEU_ALONE, CHANCE, MAIN, SHUFFLED
from captioning.metrics.table import HEADLINE, HEADLINES, SCORES, score_called
from captioning.report.runs import read_record
from captioning.runs.evaluation.captions import collapse, read_records

SHOWN = 6  # scores that are printed
MOSTLY = 90  # percent of captions that should end by themselves (D)
VIEWS = "views.md"
COLUMNS_OF_VIEWS = (HEADLINE, "repeated", "unseen pairs", "first word entropy", "word entropy")


def print_summary(folder: Path, title: str = "test score") -> None:
    """Print the main scores under `title`, a caption, and the folder that has all of them."""
    record = read_record(folder / "scores.json")
    known = [
        name
        for name, value in record.scores.items()
        if name in HEADLINES
        or (value is not None and score_called(name).group not in (MAIN, BLEU_ALONE, CHANCE))
    ]
    known.sort(key=lambda name: (name not in HEADLINES, name in SCORES))  # a user's own after those
    print(f"\n{title} (0-100; {HEADLINE} {score_called(HEADLINE).unit})")
    for name in known[:SHOWN]:
        score = score_called(name)
        unit = "" if name in HEADLINES else score.unit
        value = record.scores[name]
        text = "-" if value is None else score.printed(value)
        print(f"{name:<32}{text:>7}  {unit}".rstrip())
    chance = [
        f"{name.removesuffix(SHUFFLED)} {score_called(name).printed(value)}"
        for name, value in record.scores.items()
        if value is not None and score_called(name).group == CHANCE
    ]
    if chance:
        print(f"chance level, by the captions of other images: {', '.join(chance)}")
    if record.groups:
        print(f"\n{_table('group', HEADLINES, record.groups)}\n")
    ended = record.scores.get("ended")
    if ended is not None and ended < MOSTLY:
        longest = record.provenance.decoding.get("max_length")
        print(
            f"warning: {100 - ended:.0f} % of the captions did not end by themselves: "
            f"decoding.max_length={longest} cut them"
        )
    records = read_records(folder)
    if warning := collapse(records):
        print(f"warning: {warning}")
    for caption in records[:1]:
        print(one_line(f"image {caption.image_id}: {caption.caption}"))
    print(f"run folder: {folder}")


def print_views(folder: Path) -> None:
    """Write the known scores of all views of the photographs as `views.md`, a row for each, and
    print them.
    """
    views = read_record(folder / "scores.json").views
    text = f"Scores on changed photographs\n\n{_table('view', COLUMNS_OF_VIEWS, views)}"
    write_text(folder / VIEWS, f"# {text}\n")
    print(f"\n{text}")


def _table(
    title: str, names: Iterable[str], scores_of: Mapping[str, Mapping[str, float | None]]
) -> str:
    """A table of the known scores among `names`, a row per view or group."""
    columns = [
        score_called(name)
        for name in names
        if any(scores.get(name) is not None for scores in scores_of.values())
    ]
    rows = []
    for name, scores in scores_of.items():
        values = [(score, scores.get(score.name)) for score in columns]
        rows.append([name] + ["" if x is None else score.printed(x) for score, x in values])
    heads = [title] + [score.heading for score in columns]
    return markdown_table(heads, rows)
