"""The page `index.html` of a comparison: its numbers, and the captions side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captioning.report.compare.pair import Pair
from captioning.report.comparison import comparison_cells
from captioning.report.gallery import Gallery, ImageEntry, address, lay_images
from captioning.report.page import SCRIPTS, write_page

DIGITS = 6  # of scores: what is ranked is hardly rounded


def write_comparison(
    output: Path, pair: Pair, record: Mapping[str, Any], terms: Sequence[str]
) -> list[str]:
    """Write `index.html` of the scores and `terms` in a record; return what is left out.

    Photographs of more than `page.embed_mb` MB lie in `photographs/`.
    """
    config = pair.config
    pairs = zip(pair.references.items(), *pair.records, strict=True)
    images = [
        ImageEntry(image, references, {0: ours, 1: theirs})
        for (image, references), ours, theirs in pairs
    ]
    recorded = [side.recorded for side in pair.sides]
    _, left_out = lay_images(images, recorded, config.images, config.page.image_size)
    address(images, output / "photographs", config.page.embed_mb)
    content = Gallery(images, pair.names, [""] * len(pair.sides)).content(DIGITS)
    for entry, *split in zip(content["data"]["images"], *pair.words, strict=True):
        for answer, words in zip(entry["answers"], split, strict=True):
            if [*words] != answer["caption"].split():
                answer["words"] = words  # as they are counted
    content["data"]["systems"] = [{"label": side.label, "attention": ""} for side in pair.sides]
    # both counts of a term, and the ends of the interval
    content["data"]["terms"] = [
        [
            [term, *(round(row[key]) for key in ("ours", "theirs"))]
            + [round(row[end], 2) for end in ("low", "high")]
            for term, row in record[title].items()
        ]
        for title in terms
    ]

    styles, scripts = ["page.css", "compare.css"], [*SCRIPTS[:-1], "compare.js"]
    write_page(
        output / "index.html",
        __package__,
        "compare.html",
        styles,
        scripts,
        section={
            **content,
            "systems": pair.sides,
            "order": "difference",
            "rows": comparison_cells(record["scores"]),
            "signatures": list(record["signatures"].values()),
        },
        record=record,
        terms=terms,
        n=1,
    )
    return left_out
