"""Tables of systems as Markdown and CSV, in the layout of Table 1 of Springenberg et al. (2018),
and printed results.

`published.csv` has rows of papers, `data` and `models` as their configurations are called; their
backbones, splits and training are their own. Sources: [ST] Springenberg et al., "Image-to-Text
Transduction with Spatial Self-Attention", ESANN 2018; [SAT] Xu et al., "Show, Attend and Tell",
arXiv:1502.03044v3, which has BLEU without a brevity penalty.
"""

import csv
import io
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from captioning.data.readers.captions import read_captions, read_references
from captioning.errors import one_line
from captioning.files import write_text
from captioning.metrics.metric import BLEU_ALONE, GROUPS, HALLUCINATION, MAIN, WORDING
from captioning.metrics.statistics import NO_PENALTY
from captioning.metrics.table import HEADLINE, SCORES, score_called
from captioning.report.runs import read_record
from captioning.report.systems import Compared, System, Value, within_seeds

BY_GROUP = {
    group: [name for name, score in SCORES.items() if score.group == group] for group in GROUPS
}
TABLED = [
    *BY_GROUP[MAIN],
    *BY_GROUP[BLEU_ALONE],
    *BY_GROUP[WORDING],
]  # of all tables, whatever was scored
SHOWN = 3  # captions that are printed at the end of a run
MOSTLY = 90  # percent of captions that should end by themselves (D)
TEST_IMAGES = {
    "flickr8k": 1000,
    "flickr30k": 1000,
    "coco": 5000,
}  # of the data sets in published.csv
VIEWS = "views.md"
COLUMNS_OF_VIEWS = (HEADLINE, "repeated", "unseen pairs", "first word entropy", "word entropy")
COSTS = ("parameters", "seconds trained", "captions per second")


@dataclass(frozen=True, slots=True)
class Published:
    """One row of scores, 0-100."""

    system: str
    source: str
    caveat: str
    scores: dict[str, float]


def published_rows(
    data: Collection[str], models: Collection[str] | None = None
) -> tuple[Published, ...]:
    """Return published rows of these data sets and systems (None: all); `sat_soft_small` counts as
    `sat_soft`.
    """
    found = []
    for row in csv.DictReader(
        (files(__package__) / "published.csv").read_text(encoding="utf-8").splitlines()
    ):
        of = tuple(f"{model}_" for model in row["models"].split())
        if row["data"] in data and (
            models is None or any(f"{model}_".startswith(of) for model in models)
        ):
            scores = {name: float(row[name]) for name in row if name in SCORES}
            found.append(Published(row["system"], row["source"], row["caveat"], scores))
    return tuple(found)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table with padded columns, without a final line break."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    head, *body = [
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |"
        for row in cells
    ]
    return "\n".join([head, f"|{'|'.join('-' * (width + 2) for width in widths)}|", *body])


def shown(name: str, value: Value | None) -> str:
    """A number with its deviation; a cost without decimals."""
    if value is None:
        return ""
    if is_cost(name):
        return f"{value.mean:,.0f}" + (f" ± {value.deviation:,.0f}" if value.deviation else "")
    printed = score_called(name).printed
    return printed(value.mean) + (
        "" if value.deviation is None else f" ± {printed(value.deviation)}"
    )


def is_cost(name: str) -> bool:
    return name in COSTS or name.startswith("seconds to ")


def columns(system: System, cider: float | None) -> dict[str, Value | None]:
    """The numbers that all tables have, by their names."""
    found = {name: system.score(name) for name in TABLED}
    found["parameters"] = system.mean(lambda run: run.provenance.parameters.get("trainable"))
    found["seconds to best"] = system.mean(lambda run: run.provenance.seconds_to_best)
    if cider is not None:
        found[f"seconds to CIDEr {cider:g}"] = system.mean(lambda run: run.seconds_to(cider))
    return found


def markdown(
    title: str, systems: Sequence[System], published: Sequence[Published], cider: float | None
) -> str:
    """Format tables of scores by their groups and of cost; best scores bold."""
    best = best_scores(systems)

    def cell(system: System, name: str) -> str:
        text = shown(name, system.score(name))
        return f"**{text}**" if system in best.get(name, ()) else text

    def table(names: Sequence[str], members: Sequence[System] = systems) -> str:
        heads = [score_called(name).heading.removesuffix(NO_PENALTY) for name in names]
        return markdown_table(
            ["system", *heads], [[s.label, *(cell(s, name) for name in names)] for s in members]
        )

    def found(group: str) -> list[str]:
        return [name for name in BY_GROUP[group] if any(system.score(name) for system in systems)]

    scores = [
        name
        for name in BY_GROUP[MAIN]
        if name in found(MAIN) or any(name in p.scores for p in published)
    ]
    ours = [[s.label, s.counted, *(cell(s, name) for name in scores)] for s in systems]
    theirs = [
        [
            f"*{p.system}, {p.source}*",
            "",
            *(f"*{p.scores[n]:g}*" if n in p.scores else "" for n in scores),
        ]
        for p in published
    ]
    parts = [
        f"# {title}",
        ". ".join(overview(systems)) + ".",
        "Test split, mean ± standard deviation over seeds; 0-100 where no other unit is given.",
        markdown_table(
            ["system", "runs", *(score_called(name).heading for name in scores)], ours + theirs
        ),
    ]
    signed = "; ".join(signature_lines(systems))
    caveats = "; ".join(f"{p.system}, {p.source}: {p.caveat}" for p in published)
    parts += [f"Signatures: {signed}."] * bool(signed)
    parts += [f"Published rows, with backbones and training of their own: {caveats}."] * bool(
        published
    )
    if BY_GROUP[BLEU_ALONE][0] in found(BLEU_ALONE):
        parts += ["BLEU without brevity penalty:", table(BY_GROUP[BLEU_ALONE])]
    others = [name for name in other_scores(systems) if score_called(name).group != HALLUCINATION]
    more = {
        "The captions:": found(WORDING),
        "Hallucination:": found(HALLUCINATION),
        "Other scores:": others,
    }
    for heading, names in more.items():
        parts += (
            [heading, table(names, [s for s in systems if any(map(s.score, names))])]
            if names
            else []
        )
    costs = [
        {name: v for name, v in columns(system, cider).items() if is_cost(name)}
        for system in systems
    ]
    rows = [
        [
            system.label,
            *(shown(name, value) or "-" for name, value in cost.items()),
            "; ".join(system.devices),
        ]
        for system, cost in zip(systems, costs, strict=True)
    ]
    parts += ["Cost of training:", markdown_table(["system", *costs[0], "device"], rows)]
    return "\n\n".join(parts) + "\n"


def signature_lines(systems: Sequence[System]) -> list[str]:
    """Signatures of the scores, each with its systems unless it is that of all."""
    found: dict[str, dict[str, None]] = {}
    for system in systems:
        for signature in (
            each for run in system.runs for each in run.provenance.signatures.values()
        ):
            found.setdefault(signature, {})[system.label] = None
    return [
        f"`{each}`" + (f" ({', '.join(of)})" if len(of) < len(systems) else "")
        for each, of in found.items()
    ]


def differences(
    systems: Sequence[System], compared: Compared, names: Sequence[str], samples: int
) -> str:
    """The part of `table.md` on any two systems; nothing where none were compared by these
    scores.
    """
    names = [name for name in names if all(name in found for found in compared.values())]
    if not names or not compared:
        return ""
    rows = []
    for (one, other), found in compared.items():
        cells = []
        for name in names:
            d = found[name]
            cell = f"{d.difference:+z.1f} [{d.low:+z.1f}, {d.high:+z.1f}] {d.p:.3f}"
            cells.append(
                f"({cell})"
                if within_seeds(systems[one], systems[other], name, d.difference)
                else cell
            )
        rows.append([f"{systems[one].label} - {systems[other].label}", *cells])
    title = (
        f"Paired bootstrap over images and, of several, runs ({samples} samples): difference, 95 % "
        "interval, p. In "
        "brackets: no larger than the standard deviation over the seeds of one of the two."
    )
    table = markdown_table(["systems", *(score_called(name).heading for name in names)], rows)
    return f"\n{title}\n\n{table}\n"


def write_csv(
    path: Path, titles: Sequence[tuple[str, Sequence[System]]], cider: float | None
) -> None:
    """Write a row per system, unrounded: `NAME` is a mean, `NAME deviation` the standard
    deviation.
    """
    others = dict.fromkeys(name for _, systems in titles for name in other_scores(systems))
    rows = []
    for title, system in [(title, system) for title, systems in titles for system in systems]:
        row: dict[str, Any] = {"data": title, "system": system.label, "model": system.runs[0].model}
        row |= {"runs": len(system.runs), "seeds": " ".join(str(run.seed) for run in system.runs)}
        for name, value in (
            columns(system, cider) | {name: system.score(name) for name in others}
        ).items():
            row[name] = value and value.mean
            row[f"{name} deviation"] = value and value.deviation
        rows.append(row)
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, table.getvalue())


def other_scores(systems: Sequence[System]) -> list[str]:
    """Return names of scores that few tables have: of hallucination, and those of custom
    metrics.
    """
    found = {name for system in systems for run in system.runs for name in run.scores}
    return [
        *(name for name in BY_GROUP[HALLUCINATION] if name in found),
        *sorted(found - SCORES.keys()),
    ]


def best_scores(systems: Sequence[System]) -> dict[str, list[System]]:
    """Return the systems with the best printed value of each score, among several fully tested
    ones.
    """
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
    images = max((run.provenance.images_tested for run in runs), default=0)
    sizes = {"test images": images, "systems": len(systems), "runs": len(runs)}
    counted = ", ".join(f"{n:,} {name if n > 1 else name[:-1]}" for name, n in sizes.items() if n)
    leader = systems[0]
    value = leader.score(HEADLINE) if leader.whole and len(systems) > 1 else None
    name = leader.short if short else leader.label
    led = (
        [f"Best {score_called(HEADLINE).heading}: {name}, {shown(HEADLINE, value)}"]
        if value
        else []
    )
    data = ", ".join(dict.fromkeys(run.data for run in runs))
    return [f"{data}: {counted}; written on {date.today():%d %B %Y}", *led]


def print_summary(folder: Path, title: str = "test score") -> None:
    """Print scores, main ones first under `title`, captions with references, and file locations."""
    file = folder / "captions.jsonl"
    record, captions = read_record(folder / "scores.json"), read_captions(file)
    references = read_references(file, bare=True)
    main = {
        name: value
        for name, value in record.scores.items()
        if score_called(name).group in (MAIN, BLEU_ALONE)
    }
    others = {name: value for name, value in record.scores.items() if name not in main}
    scales = f"0-100; {HEADLINE} {score_called(HEADLINE).unit}" if HEADLINE in main else "0-100"
    for heading, found in ((f"{title} ({scales})", main), ("also measured", others)):
        if found:  # without references there are no main scores
            print(f"\n{heading}")
        for name, value in found.items():
            score = score_called(name)
            printed = "-" if value is None else score.printed(value)
            unit = "" if value is None or name in main else score.unit
            print(f"{name:<32}{printed:>7}  {unit}".rstrip())
    if (ended := record.scores.get("ended")) is not None and ended < MOSTLY:
        longest = record.provenance.decoding.get("max_length")
        print(
            f"\nwarning: {100 - ended:.0f} % of the captions did not end by themselves: "
            f"decoding.max_length={longest}"
            " cut them. It is data.max_words + 1 unless set"
        )
    if signed := record.provenance.signatures.values():
        print("", *signed, sep="\n")
    for image_id, caption in islice(captions.items(), SHOWN):
        print(f"\n{one_line(f'image {image_id}: {caption}')}")
        for reference in references[image_id]:
            print(f"    {one_line(f'reference: {reference}')}")
    print(f"\nrun folder: {folder}")
    if (folder / "attention").is_dir():
        print(f"pictures of attention: {folder / 'attention'}")


def print_comparison(folder: Path) -> None:
    """Print for every score the difference from other captions with its interval and p-value."""
    record = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    print(
        f"\nagainst {record['against']['file']}, {record['images']} images, {record['samples']} "
        "bootstrap samples\n"
    )
    print(comparison_table(record["scores"], ("", "these", "others")))


def comparison_table(
    rows: Mapping[str, Mapping[str, float]], heads: tuple[str, str, str], digits: int | None = None
) -> str:
    """Format numbers of two systems, below `heads` of the names and the systems, for a terminal."""
    cells = [(*heads, "difference", "95 % interval", "p"), *comparison_cells(rows, digits)]
    return "\n".join("{:<36}{:>7}{:>8}{:>12}{:>18}{:>8}".format(*row).rstrip() for row in cells)


def comparison_cells(
    rows: Mapping[str, Mapping[str, float]], digits: int | None = None
) -> list[tuple[str, ...]]:
    """Format name, both numbers, difference, interval and p; the last two are empty where they are
    unknown.
    """
    found: list[tuple[str, ...]] = []
    for name, row in rows.items():
        score = score_called(name)
        form = f"z.{score.digits if digits is None else digits}f"
        both, difference = (
            (f"{row[each]:{form}}" for each in ("ours", "theirs")),
            f"{row['difference']:+{form}}",
        )
        known = (
            (f"[{row['low']:+{form}}, {row['high']:+{form}}]", f"{row['p']:.3f}")
            if "p" in row
            else ("", "")
        )
        found.append((score.heading if digits is None else name, *both, difference, *known))
    return found


def print_views(folder: Path) -> None:
    """Write the known scores of all views of the photographs as `views.md`, a row per view, and
    print them.
    """
    views = read_record(folder / "scores.json").views
    known = [score_called(name) for name in COLUMNS_OF_VIEWS]
    known = [
        score
        for score in known
        if any(found.get(score.name) is not None for found in views.values())
    ]
    rows = []
    for view, found in views.items():
        values = [(score, found.get(score.name)) for score in known]
        rows.append(
            [view, *("" if value is None else score.printed(value) for score, value in values)]
        )
    table = markdown_table(["view", *(score.heading for score in known)], rows)
    text = f"Scores on changed photographs\n\n{table}"
    write_text(folder / VIEWS, f"# {text}\n")
    print(f"\n{text}")
