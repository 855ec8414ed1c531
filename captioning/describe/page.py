"""The description as text and as the page `index.html`."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.describe.captions import LONGEST
from captioning.describe.findings import GRADES, Finding
from captioning.describe.images import Pairs
from captioning.errors import listed, one_line, quoted
from captioning.files import markdown_table
from captioning.report.gallery import data_uri, read_image
from captioning.report.page import environment, write_page

WIDTH = 112  # of the text
PLACES, BARS = 20, 30  # that are listed
PAIRS, SIDE = 8, 200  # that are shown of a finding, and pixels of a longer side
SHARES = (
    "longer than max_words",
    "twice for a photograph",
    "also for another photograph",
    "also in training",
)


def as_text(numbers: Mapping[str, Any], findings: Sequence[Finding]) -> str:
    """The description in about forty lines, what needs attention first."""
    lines = [f"{numbers['data']}: {'what to look at' if findings else 'nothing to look at'}"]
    for finding in findings:
        where = f" ({listed(list(map(quoted, finding.where)))})" if finding.where else ""
        text = one_line(f"{finding.what}{where}. {finding.advice}")
        lines.append(textwrap.fill(f"{finding.grade:<8}{text}", WIDTH, subsequent_indent=" " * 8))
    lines += ["", markdown_table(["", *numbers["splits"]], rows(numbers)), ""]
    lines += [textwrap.fill(one_line(fact), WIDTH) for fact in facts(numbers)]
    return "\n".join(lines)


def write_description(
    path: Path, numbers: Mapping[str, Any], findings: Sequence[Finding], pairs: Pairs
) -> None:
    """Write the page; everything that a reader sees is in `templates/`."""
    charts = {f"Words per caption, up to {LONGEST}": numbers["splits"]["all"]["lengths"]}
    charts["Frequent words in training"] = dict(numbers["words"]["frequent"][:BARS])
    if images := numbers["photographs"]:
        charts["Frequent sizes of photographs"] = dict(images["sizes"])
        charts["Width / height"] = images["shapes"]
    write_page(
        path,
        __package__,
        "index.html",
        ["page.css"],
        [],
        findings=findings,
        pairs=pairs,
        thumbnail=_thumbnail,
        grades=GRADES,
        numbers=numbers,
        rows=rows(numbers),
        facts=facts(numbers),
        charts=charts,
        places=PLACES,
        shown=PAIRS,
    )


def _thumbnail(file: Path) -> str:
    return data_uri("image/jpeg", read_image([file], SIDE)[0])


def rows(numbers: Mapping[str, Any]) -> list[list[str]]:
    """The table of all splits, without rows of zeros."""
    splits = numbers["splits"].values()
    names = [
        name
        for name in numbers["splits"]["test"]
        if name != "lengths" and any(counts[name] for counts in splits)
    ]
    return [
        [name, *(_cell(name, counts[name], counts["captions"]) for counts in splits)]
        for name in names
    ]


def facts(numbers: Mapping[str, Any]) -> list[str]:
    """Sentences about words and photographs."""
    plain = environment(__package__).overlay(autoescape=False)
    return plain.get_template("facts.txt").render(numbers=numbers, range=_range).splitlines()


def _cell(name: str, value: Any, captions: int) -> str:
    if value in (None, []):
        return ""
    if isinstance(value, list):
        return _range(value)
    if isinstance(value, float):
        return f"{value:.1%}"
    return f"{value:,}" + (f" ({value / captions:.0%})" if value and name in SHARES else "")


def _range(values: Sequence[float], form: str = ",") -> str:
    least, _, median, _, most = (format(value, form) for value in values)
    return least if least == most else f"{least} to {most}, median {median}"
