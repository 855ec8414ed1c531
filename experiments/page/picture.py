"""Draw cards of a report: captions of several systems, and where each attended.

`README.md` has the command. The script reads what `captioning predict attention=true` has written
for each system, and writes runs from it that a report can show.
"""

import json
import sys
from pathlib import Path

import yaml
from browser import browser
from PIL import Image

from captioning.report.page import Table, write_page
from captioning.report.runs import find_runs
from captioning.report.systems import group
from captioning.runs.attention_file import FILE, AttentionRecord, read, write

SHOWN = json.loads(Path(__file__).with_name("shown.json").read_text())
"""Of each photograph its reference, and the place of a system in the table and of a word in its
caption.
"""
WIDTH, COLUMNS, GAP = 690, 2, 8


def lay_run(name: str, predicted: Path, run: Path, photographs: Path, to: Path) -> None:
    """A folder as `captioning.run` leaves it, with the captions of `predicted` in place of those of
    its test split.
    """
    to.mkdir(parents=True)
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["choices"]["model"] = name
    config["data"]["reader"]["root"] = str(photographs)
    (to / "config.yaml").write_text(yaml.safe_dump(config))
    (to / "scores.json").write_text((run / "scores.json").read_text())
    kept = {Path(str(each.image_id)).name: each for each in read(predicted / FILE)}
    lines = [
        {
            "image_id": Path(file).stem,
            "caption": " ".join(kept[file].words),
            "references": [shown["reference"]],
        }
        | {"photograph": file}
        for file, shown in SHOWN.items()
    ]
    (to / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write(
        to / FILE,
        [AttentionRecord(Path(file).stem, kept[file].words, kept[file].maps) for file in SHOWN],
    )


def main(photographs: Path, work: Path, *systems_given: str) -> None:
    """`NAME=PANELS=RUN_FOLDER` for each system; leaves `index.html` and `page.png` in `work`."""
    for number, given in enumerate(systems_given):
        name, predicted, run = given.split("=")
        lay_run(name, Path(predicted), Path(run), photographs, work / "runs" / str(number))
    systems = group(find_runs(work / "runs")[0])
    settings = {"photographs": "auto", "image_size": 320, "embed_mb": 10.0, "heads": 0}
    write_page(work, [Table("photographs", systems, (), {})], cider=None, samples=10, **settings)
    with browser() as tab:
        tab.open(work / "index.html", width=WIDTH, height=1600)
        cards = []
        for number, shown in enumerate(SHOWN.values(), start=1):
            caption = f".card:nth-child({number}) li[data-system='{shown['system']}'] .caption"
            tab.run(
                f"document.querySelector({json.dumps(caption)}).focus()"
            )  # a pointer would lie on what moves
            tab.press(*["ArrowRight"] * (shown["word"] - 1))
            tab.box(caption)  # brings it into the middle
            cards.append(tab.picture(f".card:nth-child({number})"))
    columns = [cards[start::COLUMNS] for start in range(COLUMNS)]
    height = max(sum(card.height + GAP for card in column) for column in columns)
    whole = Image.new("RGB", (COLUMNS * (cards[0].width + GAP), height), "white")
    for x, column in enumerate(columns):
        for y, card in enumerate(column):
            whole.paste(
                card, (x * (card.width + GAP), sum(above.height + GAP for above in column[:y]))
            )
    whole.save(work / "page.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
