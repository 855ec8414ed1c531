"""Tables of systems as Markdown and CSV, in the layout of Table 1 of Springenberg et al. (2018)."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from captioning.errors import quoted
from captioning.files import markdown_table, write_rows
from captioning.metrics.metric import (
    BLEU_ALONE,
    BY_GROUP,
    CHANCE,
    HALLUCINATION,
    LIKELIHOOD,
    MAIN,
    OTHER,
    SHUFFLED,
    WORDING,
)
from captioning.metrics.statistics import NO_PENALTY
from captioning.metrics.table import HEADLINE, HEADLINES, SCORES, score_called
from captioning.report.published import Published
from captioning.report.runs import Run
from captioning.report.systems import System, Value, runs_of, shared_choices

# of all tables, whatever was scored
TABLED = [name for name, score in SCORES.items() if score.group in (MAIN, BLEU_ALONE, WORDING)]
TEST_IMAGES = {"flickr8k": 1000, "flickr30k": 1000, "coco": 5000}  # of those in published.csv
COSTS: Mapping[str, Callable[[Run], float | None]] = {
    "parameters": lambda run: run.provenance.parameters.get("trainable"),
    "seconds to best": lambda run: run.provenance.seconds_to_best,
}
"""The costs of training that all tables have, by name."""
FURTHER_COSTS: Mapping[str, Callable[[Run], float | None]] = {
    "seconds trained": lambda run: run.provenance.seconds_trained,
    "captions per second": lambda run: run.captions_per_second,
}
"""Those of the page alone."""
TO_CIDER = "seconds to CIDEr "  # begins the name of a cost that the user asks for
HEADINGS = {
    "BLEU without brevity penalty:": BLEU_ALONE,
    "Chance level: the same captions, each given to the next image:": CHANCE,
    "The captions:": WORDING,
    "Scores by group, CIDEr with the document frequencies of all test images:": BY_GROUP,
    "Hallucination:": HALLUCINATION,
    "Likelihood of the references, to compare between systems of one vocabulary and "
    "`data.tokens`:": LIKELIHOOD,
    "Other scores:": OTHER,
}
"""The groups of scores that have a table of their own in `table.md`."""
Best = Mapping[str, Sequence[System]]
"""The systems with the best printed value of each score."""


def format_value(value: Value | None, name: str) -> str:
    """A number with its deviation; a cost without decimals."""
    if value is None:
        return ""
    if is_cost(name):
        return f"{value.mean:,.0f}" + (f" ± {value.deviation:,.0f}" if value.deviation else "")
    printed = score_called(name).printed
    if value.deviation is None:
        return printed(value.mean)
    return f"{printed(value.mean)} ± {printed(value.deviation)}"


def is_cost(name: str) -> bool:
    return name in COSTS or name in FURTHER_COSTS or name.startswith(TO_CIDER)


def costs(system: System, cider: float | None, further: bool = False) -> dict[str, Value | None]:
    """The costs of training, with the `further` ones last."""
    values = {name: system.mean(read) for name, read in COSTS.items()}
    if cider is not None:
        values[f"{TO_CIDER}{cider:g}"] = system.mean(lambda run: run.seconds_to(cider))
    if further:
        values |= {name: system.mean(read) for name, read in FURTHER_COSTS.items()}
    return values


def score_names(systems: Sequence[System], *groups: str) -> list[str]:
    """The scores that systems have of these groups, a user's own last."""
    names = {name for run in runs_of(systems) for name in run.scores}
    ordered = [*SCORES, *sorted(names - SCORES.keys())]
    return [name for name in ordered if name in names and score_called(name).group in groups]


def markdown(
    title: str,
    systems: Sequence[System],
    published: Sequence[Published],
    cider: float | None,
    alike: Sequence[str],
) -> str:
    """Format tables of scores by their groups and of cost; best scores bold.

    Where there are names of `alike` systems, rows have numbers, and end with those names.
    """
    best = best_scores(systems)
    parts = [
        f"# {title}",
        ". ".join(overview(systems)) + ".",
        "Test split, mean ± standard deviation over seeds; 0-100 where no other unit is given.",
        _main_table(systems, published, alike, best),
    ]
    signatures = signature_lines(systems)
    if signatures:
        parts.append(f"Signatures: {'; '.join(signatures)}.")
    if published:
        caveats = "; ".join(f"{p.system}, {p.source}: {p.caveat}" for p in published)
        parts.append(f"Rows in italics were not trained here: {caveats}.")
    for heading, group in HEADINGS.items():
        names = score_names(systems, group)
        if names:
            parts += [heading, _group_table(systems, names, best)]
    parts += ["Cost of training:", _cost_table(systems, cider)]
    return "\n\n".join(parts) + "\n"


def _main_table(
    systems: Sequence[System], published: Sequence[Published], alike: Sequence[str], best: Best
) -> str:
    """The main scores of systems, then of published rows, in italics."""
    known = {name for row in published for name in row.scores}
    known.update(score_names(systems, MAIN))
    names = [name for name in TABLED if name in known and score_called(name).group == MAIN]
    heads = ["system", "runs", *(score_called(name).heading for name in names)]
    rows = []
    for system in systems:
        rows.append([system.full_label, system.label_with_seeds, *_cells(system, names, best)])
    for row in published:
        printed = [f"*{row.scores[name]:g}*" if name in row.scores else "" for name in names]
        rows.append([f"*{row.system}, {row.source}*", "", *printed])
    if alike:
        heads = ["#", *heads, "not told apart from"]
        numbered = zip_longest(range(1, len(systems) + 1), rows, alike, fillvalue="")
        rows = [[str(number), *row, others] for number, row, others in numbered]
    return markdown_table(heads, rows)


def _group_table(systems: Sequence[System], names: Sequence[str], best: Best) -> str:
    """The scores of one group, of the systems that have any."""
    heads = ["system"]
    for name in names:
        heading = score_called(name).heading.removesuffix(NO_PENALTY)
        heads.append(heading.replace(SHUFFLED, ""))
    members = [system for system in systems if any(map(system.score, names))]
    rows = [[system.full_label, *_cells(system, names, best)] for system in members]
    return markdown_table(heads, rows)


def _cost_table(systems: Sequence[System], cider: float | None) -> str:
    rows = []
    for system in systems:
        spent = costs(system, cider)
        texts = [format_value(value, name) or "-" for name, value in spent.items()]
        rows.append([system.full_label, *texts, "; ".join(system.devices)])
    return markdown_table(["system", *spent, "device"], rows)


def _cells(system: System, names: Sequence[str], best: Best) -> list[str]:
    """The scores of a system as text, the best ones bold."""
    cells = []
    for name in names:
        text = format_value(system.score(name), name)
        cells.append(f"**{text}**" if system in best.get(name, ()) else text)
    return cells


def narrow_table(systems: Sequence[System], columns: int, asked: Sequence[str]) -> str:
    """Format as many headline scores as `columns` have room for, and say which are left out.

    Those of the metrics that are `asked` for, a user's own, and the last ones stay the longest.
    """
    names = score_names(systems, MAIN, OTHER)
    names = [name for name in names if name in HEADLINES or name not in SCORES]
    width = columns // 2
    half = (width - len("...")) // 2
    # a false one comes first
    first_out = sorted(names, key=lambda name: name not in SCORES or SCORES[name].metric in asked)
    left_out = []
    while True:
        rows = []
        for system in systems:
            label = system.label
            if len(label) > width:  # systems often differ at the end of their labels
                label = f"{label[:half]}...{label[-half:]}"
            scores = [format_value(system.score(name), name) for name in names]
            rows.append([label, str(len(system.runs)), *scores])
        table = markdown_table(["system", "runs", *names], rows)
        if not names or table.index("\n") <= columns:
            break
        left_out.append(first_out.pop(0))
        names.remove(left_out[-1])
    return f"{table}\ntable.md also has {', '.join(left_out)}" if left_out else table


def signature_lines(systems: Sequence[System]) -> list[str]:
    """Signatures of the scores, each with its systems unless it is that of all."""
    labels_of: dict[str, dict[str, None]] = {}
    for system in systems:
        for run in system.runs:
            for signature in run.provenance.signatures.values():
                labels_of.setdefault(signature, {})[system.full_label] = None
    return [
        f"`{signature}`" + (f" ({', '.join(labels)})" if len(labels) < len(systems) else "")
        for signature, labels in labels_of.items()
    ]


def write_csv(path: Path, tables: Mapping[str, Sequence[System]], cider: float | None) -> None:
    """Write the rows of `table_rows`, of which there is at least one."""
    rows = table_rows(tables, cider)
    write_rows(path, rows[0], rows)


def table_rows(tables: Mapping[str, Sequence[System]], cider: float | None) -> list[dict[str, Any]]:
    """A row per system, unrounded: `NAME` is a mean, `NAME deviation` the standard deviation."""
    every = [*chain(*tables.values())]
    others = score_names(every, CHANCE, BY_GROUP, HALLUCINATION, LIKELIHOOD, OTHER)
    rows = []
    for title, systems in tables.items():
        for system in systems:
            row: dict[str, Any] = {
                "data": title,
                "system": system.full_label,
                "model": system.runs[0].model,
                "runs": len(system.runs),
                "seeds": " ".join(str(run.seed) for run in system.runs),
            }
            values = {name: system.score(name) for name in TABLED} | costs(system, cider)
            values |= {name: system.score(name) for name in others}
            for name, value in values.items():
                row[name] = value and value.mean
                row[f"{name} deviation"] = value and value.deviation
            rows.append(row)
    return rows


def best_scores(systems: Sequence[System]) -> Best:
    """Compare the fully tested systems by each score that two of them have."""
    best = {}
    whole = [system for system in systems if system.fully_tested]
    for name, score in SCORES.items():
        means = [(system, value.mean) for system in whole if (value := system.score(name))]
        if len(means) > 1 and score.best is not None:
            choose = max if score.best == "max" else min
            most = score.printed(choose(mean for _, mean in means))
            best[name] = [system for system, mean in means if score.printed(mean) == most]
    return best


def overview(systems: Sequence[System], short: bool = False) -> list[str]:
    """Sentences on a table: its sizes, the day, the system that leads it, what all share."""
    runs = runs_of(systems)
    images = max(run.provenance.images_tested for run in runs)
    sizes = {"test images": images, "systems": len(systems), "runs": len(runs)}
    counted = ", ".join(f"{n:,} {name if n > 1 else name[:-1]}" for name, n in sizes.items())
    leader = systems[0]
    data = ", ".join(dict.fromkeys(run.data for run in runs))
    sentences = [f"{data}: {counted}; written on {date.today():%d %B %Y}"]
    value = leader.score(HEADLINE)
    if value and leader.fully_tested and len(systems) > 1:
        name = leader.label if short else leader.full_label
        heading = score_called(HEADLINE).heading
        sentences.append(f"Best {heading}: {name}, {format_value(value, HEADLINE)}")
    return [*sentences, *of_all(systems), *collapsed(systems)]


def collapsed(systems: Sequence[System]) -> list[str]:
    """A warning for each run that gives far too many images the same caption."""
    runs = [run for run in runs_of(systems) if run.collapsed]
    return [f"Warning, {quoted(run.folder)}: {run.collapsed}" for run in runs]


def of_all(systems: Sequence[System]) -> list[str]:
    """A sentence on what all systems chose, which their labels leave out; or none."""
    shared = shared_choices(runs_of(systems))
    chosen = ", ".join(f"{key}={value}" for key, value in shared.items())
    return [f"All systems here have {chosen}"] if chosen else []
