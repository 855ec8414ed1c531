"""The page `index.html` of a comparison: its numbers, and the captions side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.compare.pair import Pair
from captioning.files import write_text
from captioning.metrics import score_called
from captioning.report.gallery import Described, Gallery, address, lay_photographs
from captioning.report.page import FIRST, SCRIPTS, asset, environment, in_one_file
from captioning.report.tables import comparison_cells

REPORT = "captioning.report"
DIGITS = 6  # of scores: what is ranked is hardly rounded
COUNTS = ("ours", "theirs", "low", "high")


def write_page(
    output: Path,
    pair: Pair,
    record: Mapping[str, Any],
    terms: Sequence[str],
    photographs: str | None,
    image_size: int,
    embed_mb: float,
) -> None:
    """Write `index.html` of the scores and `terms` in a record.

    Photographs of more than `embed_mb` MB lie in `photographs/`.
    """
    rows = list(zip(*pair.lines, strict=True))
    images = [
        Described(image, list(references), dict(enumerate(lines)))
        for (image, references), lines in zip(pair.references.items(), rows, strict=True)
    ]
    lay_photographs(
        images,
        [each.root if photographs == "auto" else photographs for each in pair.sides],
        image_size,
    )
    address(images, output / "photographs", embed_mb)
    shown = [image.for_script(len(pair.sides), pair.names, DIGITS) for image in images]
    for each, lines in zip(shown, rows, strict=True):
        for answer, line in zip(each["answers"], lines, strict=True):
            answer |= (
                {} if " ".join(line.words) == line.caption else {"words": line.words}
            )  # as they are counted
    pictures = [image.address for image in images]
    counts = [
        [[term, *(round(row[each]) for each in COUNTS)] for term, row in record[name].items()]
        for name in terms
    ]
    section = {
        "systems": pair.sides,
        "gallery": Gallery(images, pair.names, [""] * len(pair.sides)),
        "order": "difference",
        "map_names": [],
        "first": list(zip(shown[:FIRST], pictures[:FIRST], strict=True)),
        "pictures": pictures,
        "rows": comparison_cells(record["scores"]),
        "signatures": list(record["signatures"].values()),
        "data": {
            "systems": [{"label": each.short, "attention": ""} for each in pair.sides],
            "metrics": pair.names,
            "least": [score_called(name).best == "min" for name in pair.names],  # is the best
            "images": shown,
            "terms": counts,
        },
    }
    template = environment(__package__, REPORT).get_template("compare.html")
    styles = [asset(REPORT, "page.css"), asset(__package__, "compare.css")]
    scripts = [*(asset(REPORT, name) for name in SCRIPTS[:-1]), asset(__package__, "compare.js")]
    content = {"section": section, "record": record, "terms": terms, "n": 1}
    write_text(output / "index.html", in_one_file(template, styles, scripts, **content))
