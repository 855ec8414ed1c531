"""Writes the page: what was gathered goes into the templates, which escape every text of it."""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from captioning.files import write_text
from captioning.report.curves import COLOURS
from captioning.report.differences import Compared
from captioning.report.page.cards import card, common_settings
from captioning.report.page.comparison import compare_means, joined
from captioning.report.page.gallery import gather
from captioning.report.page.photographs import addresses
from captioning.report.page.plots import plots
from captioning.report.page.rendering import asset, environment
from captioning.report.page.results import write_metafile, write_results
from captioning.report.page.rows import table
from captioning.report.page.tested import described_images
from captioning.report.published import Published
from captioning.report.systems import System
from captioning.report.table import overview

SCRIPTS = ("table.js", "curves.js", "maps.js", "words.js", "gallery.js", "page.js")
FIRST = 12
"""Photographs of a gallery that are there without a script."""
STROKES = ("", " hollow", " dashed")
"""Of a system's dot and line, each with all colours."""


@dataclass(frozen=True, slots=True)
class Table:
    """What is compared: systems of one data set, rows to quote, and what scorers found of any two."""

    title: str
    systems: Sequence[System]
    published: Sequence[Published]
    compared: Compared


def write_page(
    output: Path,
    tables: Sequence[Table],
    *,
    cider: float | None,
    samples: int,
    seed: int,
    photographs: str | None,
    side: int,
    inside: float,
    heads: int,
) -> tuple[list[Path], list[str]]:
    """Writes `index.html`, `results/` and `metafile.yml`, and `photographs/` where they are more than `inside` MB.

    Returns:
        the files, and a line on each that is left out.
    """
    parts, left_out = [], []
    for each in tables:
        images, without = described_images(each.systems)
        gallery, damaged = gather(each.systems, images, photographs, side, heads)
        left_out += without + damaged
        means = compare_means(images, each.systems, samples, seed)
        parts.append((each, gallery, joined(means, each.compared)))
    pictures = [photograph for _, gallery, _ in parts for photograph in gallery.photographs]
    found = iter(addresses(pictures, output / "photographs", inside))
    sections = [
        _section(each, gallery, pairs, [next(found) for _ in gallery.photographs], cider)
        for each, gallery, pairs in parts
    ]
    write_text(output / "index.html", _render(sections, samples))
    named = [(each.title, each.systems) for each in tables]
    write_metafile(output / "metafile.yml", named)
    return [output / "index.html", output / "metafile.yml", *write_results(output / "results", named)], left_out


def _section(each: Table, gallery: Any, pairs: Any, pictures: list[str | None], cider: float | None) -> dict[str, Any]:
    common = common_settings(each.systems)
    metric = gallery.metrics[0] if gallery.metrics else None
    cards = [card(place, system, common, gallery.images, metric) for place, system in enumerate(each.systems)]
    columns, rows = table(each.systems, each.published, cider)
    systems = [
        {"label": system.label, "settings": dict(own.settings), "attention": attention}
        for system, own, attention in zip(each.systems, cards, gallery.attention, strict=True)
    ]
    return {
        "title": each.title,
        "systems": each.systems,
        "columns": columns,
        "rows": rows,
        "overview": overview(each.systems),
        "published": each.published,
        "plots": plots(each.systems),
        "common": common,
        "cards": cards,
        "gallery": gallery,
        "pictures": pictures,
        "first": list(zip(gallery.for_script()[:FIRST], pictures[:FIRST], strict=False)),
        "metrics": gallery.metrics,
        "data": {
            "systems": systems,
            "metrics": gallery.metrics,
            "pairs": pairs,
            "images": gallery.for_script(),
        },
    }


def _render(sections: list[dict[str, Any]], samples: int) -> str:
    style = asset(__package__, "page.css")
    script = "\n".join(asset(__package__, name) for name in SCRIPTS)
    templates = environment(__package__)
    templates.filters |= {"tone": _tone, "breakable": _breakable}
    return templates.get_template("index.html").render(
        sections=sections,
        samples=samples,
        style=Markup(style),
        script=Markup(script),
        style_digest=_digest(style),
        script_digest=_digest(script),
    )


def _tone(place: int) -> str:
    """The classes of a system's colour, of which there are seven, and of its stroke where these are used up."""
    stroke, colour = divmod(place, len(COLOURS))
    return f"c{colour}{STROKES[stroke % len(STROKES)]}"


def _breakable(label: str) -> Markup:
    """With places where a line may end: settings have no spaces."""
    return Markup(re.sub(r"([_.=/])(?=.)", r"\1<wbr>", str(escape(label))))


def _digest(text: str) -> str:
    """As a content security policy names what may run."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
