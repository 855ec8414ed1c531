"""Tables of systems as Markdown and CSV, in the layout of Table 1 of Springenberg et al. (2018)."""

import csv
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from captioning.metrics.bootstrap import Difference
from captioning.metrics.scorer import BLEU_ALONE, GROUPS, HEADLINE, MAIN, SCORES, WORDING, score_called
from captioning.metrics.statistics import NO_PENALTY
from captioning.report.published import Published
from captioning.report.systems import Compared, System, Value

BY_GROUP = {group: [name for name, score in SCORES.items() if score.group == group] for group in GROUPS}
TABLED = [*BY_GROUP[MAIN], *BY_GROUP[BLEU_ALONE], *BY_GROUP[WORDING]]
"""Scores of the table that all tables have, whatever was scored."""


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The lines of a table, without the end of the last; every column is as wide as its widest cell."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    head, *body = [
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |" for row in cells
    ]
    return "\n".join([head, f"|{'|'.join('-' * (width + 2) for width in widths)}|", *body])


def columns(system: System, cider: float | None) -> dict[str, Value | None]:
    """All numbers of a row by their names."""
    found = {name: system.score(name) for name in TABLED}
    found["parameters"] = system.provenance(lambda run: run.provenance.parameters.get("trainable"))
    found["seconds to best"] = system.provenance(lambda run: run.provenance.seconds_to_best)
    if cider is not None:
        found[f"seconds to CIDEr {cider:g}"] = system.provenance(lambda run: run.seconds_to(cider))
    return found


def markdown(title: str, systems: Sequence[System], published: Sequence[Published], cider: float | None) -> str:
    """A table each of scores, of BLEU without brevity penalty, wording, other scores, cost; the best scores bold."""
    rows = [(system, columns(system, cider)) for system in systems]
    best = best_scores(systems)

    def cell(system: System, name: str) -> str:
        value = system.score(name)
        return f"**{shown(name, value)}**" if system in best.get(name, ()) else shown(name, value)

    def table(names: Sequence[str], heads: Sequence[str]) -> str:
        return markdown_table(["system", *heads], [[s.label, *(cell(s, name) for name in names)] for s in systems])

    scores = [n for n in BY_GROUP[MAIN] if any(v[n] for _, v in rows) or any(n in p.scores for p in published)]
    ours = [[s.label, s.counted, *(cell(s, name) for name in scores)] for s in systems]
    theirs = [
        [f"*{p.system}, {p.source}*", "", *(f"*{p.scores[n]:g}*" if n in p.scores else "" for n in scores)]
        for p in published
    ]
    parts = [
        f"# {title}",
        ". ".join(overview(systems)) + ".",
        "Test split, mean ± standard deviation over seeds; 0-100 where no other unit is given.",
        markdown_table(["system", "runs", *(score_called(name).heading for name in scores)], ours + theirs),
    ]
    if published:
        caveats = "; ".join(f"{p.system}, {p.source}: {p.caveat}" for p in published)
        parts.append(f"Published rows, with backbones and training of their own: {caveats}.")
    without = BY_GROUP[BLEU_ALONE]
    if any(values[without[0]] for _, values in rows):
        parts += ["BLEU without brevity penalty:", table(without, [n.removesuffix(NO_PENALTY) for n in without])]
    found = [name for name in BY_GROUP[WORDING] if any(v[name] for _, v in rows)]
    worded = [[s.label, *(shown(name, v[name]) for name in found)] for s, v in rows if any(v[n] for n in found)]
    if worded:  # runs of earlier versions have none of these
        heads = [score_called(name).heading for name in found]
        parts += ["The captions:", markdown_table(["system", *heads], worded)]
    if others := other_scores(systems):
        parts += ["Other scores:", table(others, others)]
    cost = [name for name in rows[0][1] if name not in TABLED]
    devices = ["; ".join(sorted({run.provenance.device for run in s.runs})) for s in systems]
    costs = [[s.label, *(_whole(v[n]) for n in cost), device] for (s, v), device in zip(rows, devices, strict=True)]
    parts += ["Cost of training:", markdown_table(["system", *cost, "device"], costs)]
    return "\n\n".join(parts) + "\n"


def differences(systems: Sequence[System], compared: Compared, names: Sequence[str], samples: int) -> str:
    """The part of `table.md` on any two systems; nothing where none were compared by these scores."""
    names = [name for name in names if all(name in found for found in compared.values())]
    if not names or not compared:
        return ""
    rows = [
        [f"{systems[one].label} - {systems[other].label}", *(_difference(found[name]) for name in names)]
        for (one, other), found in compared.items()
    ]
    title = f"Paired bootstrap over images and, of several, runs ({samples} samples): difference, 95 % interval, p."
    table = markdown_table(["systems", *(score_called(name).heading for name in names)], rows)
    return f"\n{title}\n\n{table}\n"


def _difference(found: Difference) -> str:
    return f"{found.difference:+z.1f} [{found.low:+z.1f}, {found.high:+z.1f}] {found.p:.3f}"


def write_csv(path: Path, titles: Sequence[tuple[str, Sequence[System]]], cider: float | None) -> None:
    """A row for each system with all numbers, unrounded: `NAME` is a mean, `NAME deviation` the standard deviation."""
    others = dict.fromkeys(name for _, systems in titles for name in other_scores(systems))
    rows = []
    for title, systems in titles:
        for system in systems:
            row: dict[str, str | float | int | None] = {
                "data": title,
                "system": system.label,
                "model": system.runs[0].model,
                "runs": len(system.runs),
                "seeds": " ".join(str(run.seed) for run in system.runs),
            }
            for name, value in (columns(system, cider) | {name: system.score(name) for name in others}).items():
                row[name] = None if value is None else value.mean
                row[f"{name} deviation"] = None if value is None else value.deviation
            rows.append(row)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def other_scores(systems: Sequence[System]) -> list[str]:
    """Names of scores that the table of scores does not have, such as those of a user's own metrics."""
    return sorted({name for system in systems for run in system.runs for name in run.scores if name not in SCORES})


def best_scores(systems: Sequence[System]) -> dict[str, list[System]]:
    """By score the systems that are best as printed, of several that were tested on all of the split."""
    found = {}
    whole = [system for system in systems if system.whole]
    for score in (score for score in SCORES.values() if score.best):
        means = [(system, value.mean) for system in whole if (value := system.score(score.name))]
        if len(means) > 1:
            most = score.printed((max if score.best == "max" else min)(mean for _, mean in means))
            found[score.name] = [system for system, mean in means if score.printed(mean) == most]
    return found


def overview(systems: Sequence[System], short: bool = False) -> list[str]:
    """Sentences on a table: its sizes, the day, and the system that leads it."""
    runs = [run for system in systems for run in system.runs]
    images = max((run.images_tested or 0 for run in runs), default=0)
    sizes = {"test photographs": images, "systems": len(systems), "runs": len(runs)}
    counted = ", ".join(f"{n:,} {name if n > 1 else name[:-1]}" for name, n in sizes.items() if n)
    leader = systems[0]
    value = leader.score(HEADLINE) if leader.whole and len(systems) > 1 else None
    name = leader.short if short else leader.label
    led = [f"Best {score_called(HEADLINE).heading}: {name}, {shown(HEADLINE, value)}"] if value else []
    data = ", ".join(dict.fromkeys(run.data for run in runs))
    return [f"{data}: {counted}; written on {date.today():%d %B %Y}", *led]


def shown(name: str, value: Value | None) -> str:
    """A score with its deviation."""
    if value is None:
        return ""
    printed = score_called(name).printed
    return printed(value.mean) + ("" if value.deviation is None else f" ± {printed(value.deviation)}")


def _whole(value: Value | None) -> str:
    if value is None:
        return "-"
    return f"{value.mean:,.0f}" + (f" ± {value.deviation:,.0f}" if value.deviation else "")
