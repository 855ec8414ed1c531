"""The table of systems, in the layout of Table 1 of Springenberg et al. (2018), as Markdown and as CSV."""

import csv
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from captioning.metrics.scorer import BLEU_ALONE, GROUPS, HEADLINE, MAIN, SCORES, WORDING
from captioning.metrics.statistics import NO_PENALTY
from captioning.report.markdown import markdown_table
from captioning.report.published import Published
from captioning.report.systems import System, Value
from captioning.report.units import headed, printed

BY_GROUP = {group: [name for name, score in SCORES.items() if score.group == group] for group in GROUPS}
TABLED = [*BY_GROUP[MAIN], *BY_GROUP[BLEU_ALONE], *BY_GROUP[WORDING]]
"""Scores in `table.md` and `table.csv`."""


def columns(system: System, cider: float | None) -> dict[str, Value | None]:
    """All numbers of a row by their names."""
    found = {name: system.score(name) for name in TABLED}
    found["parameters"] = system.provenance(lambda run: run.provenance.parameters.get("trainable"))
    found["seconds to best"] = system.provenance(lambda run: run.provenance.seconds_to_best)
    if cider is not None:
        found[f"seconds to CIDEr {cider:g}"] = system.provenance(lambda run: run.seconds_to(cider))
    return found


def markdown(title: str, systems: Sequence[System], published: Sequence[Published], cider: float | None) -> str:
    """One table of scores, one of BLEU without brevity penalty, one of wording, one of cost; the best scores bold."""
    rows = [(system, columns(system, cider)) for system in systems]
    best = best_scores(systems)

    def cell(system: System, name: str, value: Value | None) -> str:
        return f"**{shown(name, value)}**" if system in best.get(name, ()) else shown(name, value)

    scores = [n for n in BY_GROUP[MAIN] if any(v[n] for _, v in rows) or any(n in p.scores for p in published)]
    cost = [name for name in rows[0][1] if name not in TABLED]
    ours = [[s.label, s.counted, *(cell(s, n, values[n]) for n in scores)] for s, values in rows]
    theirs = [
        [f"*{p.system}, {p.source}*", "", *(f"*{p.scores[n]:g}*" if n in p.scores else "" for n in scores)]
        for p in published
    ]
    devices = ["; ".join(sorted({run.provenance.device for run in s.runs})) for s in systems]
    parts = [
        f"# {title}",
        ". ".join(overview(systems)) + ".",
        "Test split, mean ± standard deviation over seeds; 0-100 where no other unit is given.",
        markdown_table(["system", "runs", *map(headed, scores)], ours + theirs),
    ]
    if published:
        caveats = "; ".join(f"{p.system}, {p.source}: {p.caveat}" for p in published)
        parts.append(f"Published rows, with backbones and training of their own: {caveats}.")
    if any(values[BY_GROUP[BLEU_ALONE][0]] for _, values in rows):
        without = BY_GROUP[BLEU_ALONE]
        bleu = [[s.label, *(cell(s, n, values[n]) for n in without)] for s, values in rows]
        parts += [
            "BLEU without brevity penalty:",
            markdown_table(["system", *(n.removesuffix(NO_PENALTY) for n in without)], bleu),
        ]
    found = [name for name in BY_GROUP[WORDING] if any(v[name] for _, v in rows)]
    worded = [[s.label, *(shown(name, v[name]) for name in found)] for s, v in rows if any(v[n] for n in found)]
    if worded:  # runs of earlier versions have none of these
        parts += ["The captions:", markdown_table(["system", *map(headed, found)], worded)]
    costs = [[s.label, *(_whole(v[n]) for n in cost), device] for (s, v), device in zip(rows, devices, strict=True)]
    parts += ["Cost of training:", markdown_table(["system", *cost, "device"], costs)]
    return "\n\n".join(parts) + "\n"


def write_csv(path: Path, titles: Sequence[tuple[str, Sequence[System]]], cider: float | None) -> None:
    """A row for each system with all numbers, unrounded: `NAME` is a mean, `NAME deviation` the standard deviation."""
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
            for name, value in columns(system, cider).items():
                row[name] = None if value is None else value.mean
                row[f"{name} deviation"] = None if value is None else value.deviation
            rows.append(row)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def best_scores(systems: Sequence[System]) -> dict[str, list[System]]:
    """By score the systems that are best as printed, of several that were tested on all of the split."""
    found = {}
    whole = [system for system in systems if system.whole]
    for name in (*BY_GROUP[MAIN], *BY_GROUP[BLEU_ALONE]):
        means = [(system, value.mean) for system in whole if (value := system.score(name))]
        if len(means) > 1:
            most = printed(name, max(mean for _, mean in means))
            found[name] = [system for system, mean in means if printed(name, mean) == most]
    return found


def overview(systems: Sequence[System]) -> list[str]:
    """Sentences on a table: its sizes, the day, and the system that leads it."""
    runs = [run for system in systems for run in system.runs]
    images = max((run.provenance.images_tested or 0 for run in runs), default=0)
    sizes = {"test photographs": images, "systems": len(systems), "runs": len(runs)}
    counted = ", ".join(f"{n:,} {name if n > 1 else name[:-1]}" for name, n in sizes.items() if n)
    leader = systems[0]
    value = leader.score(HEADLINE) if leader.whole and len(systems) > 1 else None
    led = [f"Best {headed(HEADLINE)}: {leader.label}, {shown(HEADLINE, value)}"] if value else []
    data = ", ".join(dict.fromkeys(run.data for run in runs))
    return [f"{data}: {counted}; written on {date.today():%d %B %Y}", *led]


def shown(name: str, value: Value | None) -> str:
    """Of a score, by its name."""
    if value is None:
        return ""
    return printed(name, value.mean) + ("" if value.deviation is None else f" ± {printed(name, value.deviation)}")


def _whole(value: Value | None) -> str:
    if value is None:
        return "-"
    return f"{value.mean:,.0f}" + (f" ± {value.deviation:,.0f}" if value.deviation else "")
