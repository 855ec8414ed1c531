"""The page `index.html` of a comparison: its numbers, and the captions side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.files import write_text
from captioning.metrics import score_called
from captioning.report.compare.pair import Pair
from captioning.report.gallery import Gallery, ImageEntry, address, lay_photographs
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
    rows = list(zip(*pair.records, strict=True))
    images = [
        ImageEntry(image, list(references), dict(enumerate(records)))
        for (image, references), records in zip(pair.references.items(), rows, strict=True)
    ]
    recorded = [side.recorded for side in pair.sides]
    lay_photographs(images, recorded, photographs, image_size)
    address(images, output / "photographs", embed_mb)
    shown = [image.for_script(len(pair.sides), pair.names, DIGITS) for image in images]
    for entry, split in zip(shown, zip(*pair.words, strict=True), strict=True):
        for answer, words in zip(entry["answers"], split, strict=True):
            if " ".join(words) != answer["caption"]:
                answer["words"] = words  # as they are counted
    pictures = [image.address for image in images]
    counts = [
        [[term, *(round(row[name]) for name in COUNTS)] for term, row in record[title].items()]
        for title in terms
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
            "systems": [{"label": side.label, "attention": ""} for side in pair.sides],
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
