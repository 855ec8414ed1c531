"""The page `index.html` that a browser opens: table, curves, photographs, attention, systems.

Everything that a reader sees is in `templates/`; they escape every text.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from captioning.config.arguments import command_line
from captioning.files import write_text
from captioning.metrics.metric import (
    ATTENTION,
    BY_GROUP,
    CHANCE,
    GROUPS,
    HALLUCINATION,
    LIKELIHOOD,
    OTHER,
)
from captioning.metrics.statistics import NO_PENALTY
from captioning.metrics.table import score_called
from captioning.report.comparison import Compared, both_ways, format_p, interval_content
from captioning.report.gallery import Gallery, address, data_uri, gather
from captioning.report.maps import Shown
from captioning.report.published import Published
from captioning.report.systems import System, Value
from captioning.report.tables import (
    TABLED,
    best_scores,
    costs,
    format_value,
    is_cost,
    overview,
    score_names,
    signature_lines,
)
from captioning.runs.settings import each_setting

SCRIPTS = ("table.js", "maps.js", "words.js", "gallery.js", "page.js")
# of a system's dot: strokes, with all colours each
COLOURS, STROKES = 7, ("", " hollow", " dashed")
COST = "cost of training"


@dataclass
class Table:
    """Systems of one data set, published rows, pairwise comparisons, and curves as SVG."""

    title: str
    systems: Sequence[System]
    published: Sequence[Published]
    compared: Compared
    scores: Sequence[str]  # that pairs are compared by, the first one first
    alike: Sequence[str]  # by `not_told_apart`, of each system
    curves: bytes  # SVG, or nothing


def write_report(
    output: Path, tables: Sequence[Table], cider: float | None, source: str | None, page: Any
) -> list[str]:
    """Write `index.html`, and `photographs/` beyond `page.embed_mb` MB; return the skipped files.

    `source` is the folder of the images, as `gallery.gather` has it, and `page` has the settings
    of the command below `page`.
    """
    galleries, left_out = [], list[str]()
    for table in tables:
        gallery, damaged = gather(table.systems, source, page.image_size, page.heads)
        galleries.append(gallery)
        left_out += damaged
    images = [image for gallery in galleries for image in gallery.images]
    address(images, output / "photographs", page.embed_mb)
    sections = [
        _section(table, gallery, cider) for table, gallery in zip(tables, galleries, strict=True)
    ]
    page_file = output / "index.html"
    write_page(page_file, __package__, "index.html", ["page.css"], SCRIPTS, sections=sections)
    return left_out


def write_page(
    path: Path,
    package: str,
    name: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    **content: Any,
) -> None:
    """Write a template on `base.html` as one file with its styles and scripts.

    They are the only ones that its policy allows.
    """
    templates = environment(package)
    style, script = joined(templates, styles), joined(templates, scripts)
    write_text(path, templates.get_template(name).render(style=style, script=script, **content))


def environment(package: str) -> Environment:
    """The templates of a package and those of reports, which it may replace."""
    templates = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(__package__)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "tone": _tone,
        "breakable": _breakable,
        "number": format_value,
        "search": _search,
        "p": format_p,
        "digest": _digest,
    }
    return templates


def joined(templates: Environment, names: Sequence[str]) -> Markup:
    """Styles or scripts that lie with templates, one below the other."""
    assert templates.loader is not None
    return Markup("\n".join(templates.loader.get_source(templates, name)[0] for name in names))


def _section(table: Table, gallery: Gallery, cider: float | None) -> Shown:
    settings = [_formatted(system.runs[0].settings) for system in table.systems]
    common = {
        key: value
        for key, value in settings[0].items()
        if all(other.get(key) == value for other in settings)
    }
    own = [{key: value for key, value in given.items() if key not in common} for given in settings]
    heads, rows = table_of(table.systems, table.published, cider)
    content = gallery.content()
    content["data"]["systems"] = [
        {"label": system.label, "settings": chosen, "attention": attention}
        for system, chosen, attention in zip(table.systems, own, gallery.attention, strict=True)
    ]
    return {
        **vars(table),
        **content,
        "columns": heads,
        "rows": rows,
        "pairs": both_ways(table.compared),
        "intervals": interval_content(table.compared),
        "overview": overview(table.systems, short=True),
        "signatures": [line.replace("`", "") for line in signature_lines(table.systems)],
        "curves": table.curves and data_uri("image/svg+xml", table.curves),
        "common": common,
        "own": own,
        "commands": [reproducing_command(system) for system in table.systems],
    }


def reproducing_command(system: System) -> str:
    """The command that trains a system, as its first run recorded it, for the seeds of all."""
    run = system.runs[0]
    folder = run.recorded.get("config_dir")
    dropped = ("resume", "seed", "test")
    kept = [override for override in run.overrides if override.partition("=")[0] not in dropped]
    sweep = ["-m"] if len(system.runs) > 1 else []
    if run.experiment != "null" and not sweep:
        sweep = ["hydra.mode=RUN"]  # an experiment may be a sweep by itself
    options = ["--config-dir", str(folder)] if folder else []
    seeds = ",".join(str(member.seed) for member in system.runs)
    return command_line([*options, *sweep, *kept, f"seed={seeds}"])


def table_of(
    systems: Sequence[System], published: Sequence[Published], cider: float | None
) -> tuple[list[dict[str, str]], list[Shown]]:
    """Return nonempty columns by group, and rows: our systems, then published ones."""
    attention = sorted(score_names(systems, ATTENTION))
    others = score_names(systems, CHANCE, BY_GROUP, HALLUCINATION, LIKELIHOOD, OTHER)
    rows: list[Shown] = []
    known: list[dict[str, Value | None]] = []
    for place, system in enumerate(systems):
        scores = {name: system.score(name) for name in (*TABLED, *attention, *others)}
        known.append(scores | costs(system, cider, further=True))
        rows.append(
            {
                "label": system.label,
                "place": place,
                "runs": system.label_with_seeds,
                "device": ", ".join(system.devices),
            }
        )
    for row in published:
        known.append({name: Value(score) for name, score in row.scores.items()})
        label = f"{row.system}, {row.source}"
        rows.append({"label": label, "place": None, "runs": "", "device": "", "caveat": row.caveat})
    groups = {
        name: COST if is_cost(name) else score_called(name).group
        for name in known[0]
        if any(values.get(name) for values in known)
    }
    names = sorted(groups, key=lambda name: (*GROUPS, COST).index(groups[name]))
    heads = [
        {"name": name, "group": groups[name], "heading": name.removesuffix(NO_PENALTY)}
        for name in names
    ]
    best = best_scores(systems)
    for about, values, system in zip_longest(rows, known, systems):
        about["cells"] = [(name, values.get(name), system in best.get(name, ())) for name in names]
    return heads, rows


def _formatted(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as they are typed, a part by the name of its class."""
    shown = {}
    for key, value in sorted(settings.items()):
        group, _, last = key.rpartition(".")
        value = value.strip("'")
        if last == "_target_":
            shown[group] = value.rpartition(".")[2]
        elif last != "_partial_":
            shown[key] = value
    return shown


def _search(settings: Mapping[str, object]) -> str:
    """A search and its arguments, without filters that are off."""
    words = [str(settings.get("_target_", "")).rpartition(".")[2]]
    words += [
        f"{key}={value}"
        for key, value in each_setting(settings)
        if key.rpartition(".")[2][:1] != "_" and str(value) not in ("0", "False", "[]", "None")
    ]
    return " ".join(words)


def _tone(index: int) -> str:
    """The classes of a system's colour, and of its stroke where colours are used up."""
    stroke, colour = divmod(index, COLOURS)
    return f"c{colour}{STROKES[stroke % len(STROKES)]}"


def _breakable(label: str) -> Markup:
    """With places where a line may end: settings have no spaces."""
    return Markup(re.sub(r"([_.=/])(?=.)", r"\1<wbr>", escape(label)))


def _digest(text: str) -> str:
    """As a content security policy names what may run."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
