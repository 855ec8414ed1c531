"""The table of systems, in the layout of Table 1 of Springenberg et al. (2018), as Markdown and as CSV."""

import csv
from collections.abc import Sequence
from pathlib import Path

from captioning.report.published import Published
from captioning.report.systems import System, Value

BLEU = [f"BLEU-{n}" for n in range(1, 5)]
SCORES = [*BLEU, "METEOR", "ROUGE-L", "CIDEr"]
NO_PENALTY = " (no brevity penalty)"


def columns(system: System, cider: float | None) -> dict[str, Value | None]:
    """All numbers of a row by their names."""
    found = {name: system.score(name) for name in [*SCORES, *(name + NO_PENALTY for name in BLEU)]}
    found["parameters"] = system.provenance(lambda run: run.provenance.get("parameters", {}).get("trainable"))
    found["seconds to best"] = system.provenance(lambda run: run.provenance.get("seconds_to_best"))
    if cider is not None:
        found[f"seconds to CIDEr {cider:g}"] = system.provenance(lambda run: run.seconds_to(cider))
    return found


def markdown(title: str, systems: Sequence[System], published: Sequence[Published], cider: float | None) -> str:
    """One table of scores, one of BLEU without brevity penalty, one of cost; mean and deviation over seeds."""
    rows = [(system, columns(system, cider)) for system in systems]
    cost = [name for name in rows[0][1] if name not in SCORES and NO_PENALTY not in name]
    lines = [f"# {title}", "", "Test split, 0-100, mean ± standard deviation over seeds.", ""]
    lines += _table(
        ["system", "seeds", *SCORES],
        [[s.label, _seeds(s), *(_shown(values[name]) for name in SCORES)] for s, values in rows]
        + [[f"*{p.system}, {p.source}*", "", *(f"*{x:g}*" for x in (*p.bleu, p.meteor)), "", ""] for p in published],
    )
    if published:
        lines += ["", "Published rows, with backbones and training of their own: "]
        lines[-1] += "; ".join(f"{p.system}, {p.source}: {p.caveat}" for p in published) + "."
    lines += ["", "BLEU without brevity penalty:", ""]
    lines += _table(["system", *BLEU], [[s.label, *(_shown(v[n + NO_PENALTY]) for n in BLEU)] for s, v in rows])
    lines += ["", "Cost of training:", ""]
    devices = [", ".join(sorted({str(run.provenance.get("device", "?")) for run in s.runs})) for s in systems]
    lines += _table(
        ["system", *cost, "device"],
        [[s.label, *(_whole(v[n]) for n in cost), device] for (s, v), device in zip(rows, devices, strict=True)],
    )
    return "\n".join(lines) + "\n"


def write_csv(path: Path, titles: Sequence[tuple[str, Sequence[System]]], cider: float | None) -> None:
    """A row for each system with every number: `NAME` is the mean, `NAME deviation` the standard deviation."""
    rows = []
    for title, systems in titles:
        for system in systems:
            row: dict[str, str | float | int | None] = {"data": title, "system": system.label, "seeds": _seeds(system)}
            for name, value in columns(system, cider).items():
                row[name] = None if value is None else value.mean
                row[f"{name} deviation"] = None if value is None else value.deviation
            rows.append(row)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _seeds(system: System) -> str:
    return " ".join(str(run.seed) for run in system.runs)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def _shown(value: Value | None) -> str:
    if value is None:
        return ""
    return f"{value.mean:.1f}" + ("" if value.deviation is None else f" ± {value.deviation:.1f}")


def _whole(value: Value | None) -> str:
    if value is None:
        return "-"
    return f"{value.mean:,.0f}" + (f" ± {value.deviation:,.0f}" if value.deviation else "")
