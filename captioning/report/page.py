"""The page `index.html` that a browser opens: table, curves, photographs, attention, systems."""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from captioning.files import write_text
from captioning.metrics.scorer import ATTENTION, GROUPS, score_called
from captioning.metrics.statistics import NO_PENALTY
from captioning.report.cards import card, shown_settings
from captioning.report.gallery import Gallery, addresses, data_uri, gather
from captioning.report.published import Published
from captioning.report.rendering import asset, environment
from captioning.report.systems import Compared, System, Value
from captioning.report.tables import best_scores, columns, other_scores, overview

SCRIPTS = ("table.js", "maps.js", "words.js", "gallery.js", "page.js")
FIRST = 12
"""Photographs of a gallery that are there without a script."""
COLOURS, STROKES = 7, ("", " hollow", " dashed")
"""Of a system's dot: strokes, with all colours each."""
COST = "cost of training"
COSTS = ("parameters", "seconds trained", "captions per second")


@dataclass(frozen=True, slots=True)
class Table:
    """Systems of one data set, rows to quote, how any two of the systems differ, and the curves as SVG."""

    title: str
    systems: Sequence[System]
    published: Sequence[Published]
    compared: Compared
    curves: bytes = b""


def write_page(
    output: Path,
    tables: Sequence[Table],
    *,
    cider: float | None,
    samples: int,
    photographs: str | None,
    side: int,
    inside: float,
    heads: int,
) -> list[str]:
    """Write `index.html`, and `photographs/` where they have more than `inside` MB; a line on each file left out."""
    galleries, left_out = [], list[str]()
    for each in tables:
        gallery, damaged = gather(each.systems, photographs, side, heads)
        galleries.append(gallery)
        left_out += damaged
    found = iter(addresses([p for gallery in galleries for p in gallery.photographs], output / "photographs", inside))
    sections = [
        _section(each, gallery, [next(found) for _ in gallery.photographs], cider)
        for each, gallery in zip(tables, galleries, strict=True)
    ]
    style, script = asset(__package__, "page.css"), "\n".join(asset(__package__, name) for name in SCRIPTS)
    templates = environment(__package__)
    templates.filters |= {"tone": _tone, "breakable": _breakable, "number": _number}
    page = templates.get_template("index.html").render(
        sections=sections,
        samples=samples,
        style=Markup(style),
        script=Markup(script),
        style_digest=_digest(style),
        script_digest=_digest(script),
    )
    write_text(output / "index.html", page)
    return left_out


def _section(table: Table, gallery: Gallery, pictures: list[str | None], cider: float | None) -> dict[str, Any]:
    settings = [shown_settings(system) for system in table.systems]
    common = {key: value for key, value in settings[0].items() if all(each.get(key) == value for each in settings)}
    own = [{key: value for key, value in each.items() if key not in common} for each in settings]
    shown, rows = table_of(table.systems, table.published, cider)
    images = gallery.for_script()
    systems = [
        {"label": system.short, "settings": each, "attention": attention}
        for system, each, attention in zip(table.systems, own, gallery.attention, strict=True)
    ]
    pairs = {
        f"{one}-{other}": {name: [round(n, 4) for n in (d.difference, d.low, d.high, d.p)] for name, d in found.items()}
        for (one, other), found in table.compared.items()
    }
    return {
        "title": table.title,
        "systems": table.systems,
        "columns": shown,
        "rows": rows,
        "overview": overview(table.systems, short=True),
        "published": table.published,
        "curves": table.curves and data_uri("image/svg+xml", table.curves),
        "common": common,
        "cards": [card(place, system, own[place], gallery) for place, system in enumerate(table.systems)],
        "gallery": gallery,
        "pictures": pictures,
        "first": list(zip(images[:FIRST], pictures[:FIRST], strict=True)),
        "metrics": gallery.metrics,
        "data": {"systems": systems, "metrics": gallery.metrics, "pairs": pairs, "images": images},
    }


def table_of(
    systems: Sequence[System], published: Sequence[Published], cider: float | None
) -> tuple[list[dict[str, str]], list[dict[str, Any]]]:
    """Columns in which there is something, by their groups, and rows of values: our systems, then quoted ones."""
    values = [
        {
            **columns(system, cider),
            "seconds trained": system.provenance(lambda run: run.provenance.seconds_trained),
            "captions per second": system.provenance(lambda run: run.captions_per_second),
            **{name: system.score(name) for name in (*_attention_scores(systems), *other_scores(systems))},
        }
        for system in systems
    ]
    names = [n for n in values[0] if any(v[n] for v in values) or any(n in row.scores for row in published)]
    groups = {name: COST if _is_cost(name) else score_called(name).group for name in names}
    names.sort(key=lambda name: (*GROUPS, COST).index(groups[name]))
    shown = [{"name": name, "group": groups[name], "heading": _heading(name, groups[name])} for name in names]
    best = best_scores(systems)
    ours = [
        {
            "label": system.short,
            "cells": [(n, row[n], system in best.get(n, ())) for n in names],
            "place": place,
            "runs": system.counted,
            "device": ", ".join(sorted({run.provenance.device for run in system.runs})),
        }
        for place, (system, row) in enumerate(zip(systems, values, strict=True))
    ]
    theirs = [
        {
            "label": f"{row.system}, {row.source}",
            "cells": [(n, Value(row.scores[n], None) if n in row.scores else None, False) for n in names],
            "place": None,
            "runs": "",
            "caveat": row.caveat,
            "device": "",
        }
        for row in published
    ]
    return shown, ours + theirs


def _attention_scores(systems: Sequence[System]) -> list[str]:
    names = {name for system in systems for run in system.runs for name in run.scores}
    return sorted(name for name in names if score_called(name).group == ATTENTION)


def _is_cost(name: str) -> bool:
    return name in COSTS or name.startswith("seconds to ")


def _heading(name: str, group: str) -> str:
    """Without the words that its group has too."""
    name = name.removesuffix(NO_PENALTY)
    return name.removeprefix("attention ") if group == ATTENTION else name


def _number(value: Value | None, name: str) -> str:
    """A cell of the table."""
    if value is None:
        return ""
    digits = 0 if _is_cost(name) else score_called(name).digits
    known = value.deviation is not None and (digits or value.deviation)  # whole numbers may be the same in all runs
    return f"{value.mean:,.{digits}f}" + (f" ± {value.deviation:,.{digits}f}" if known else "")


def _tone(place: int) -> str:
    """The classes of a system's colour, and of its stroke where colours are used up."""
    stroke, colour = divmod(place, COLOURS)
    return f"c{colour}{STROKES[stroke % len(STROKES)]}"


def _breakable(label: str) -> Markup:
    """With places where a line may end: settings have no spaces."""
    return Markup(re.sub(r"([_.=/])(?=.)", r"\1<wbr>", str(escape(label))))


def _digest(text: str) -> str:
    """As a content security policy names what may run."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
