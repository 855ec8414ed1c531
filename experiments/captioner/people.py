"""Find people in captions of images whose references mention none.

    captioning predict images="$IMAGES" > captions.jsonl
    python experiments/captioner/people.py captions.jsonl captions.json > coco.csv

`captions.json` has the references in COCO's layout. Prints CSV, a row per image: its caption, the
caption's confidence, and whether any reference and the caption name a person by the list of CHAIR
(`experiments/chair/metric.py`).
"""

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from experiments.chair.metric import mentions


def named(captions: Iterable[str]) -> str:
    return "yes" if any("person" in mentions(caption) for caption in captions) else "no"


def main() -> None:
    captions, annotated = map(Path, sys.argv[1:])
    data = json.loads(annotated.read_text())
    references = defaultdict(list)
    for each in data["annotations"]:
        references[each["image_id"]].append(each["caption"])
    files = {image["file_name"]: references[image["id"]] for image in data["images"]}

    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["image", "caption", "confidence", "in references", "in caption"])
    for line in captions.read_text().splitlines():
        found = json.loads(line)
        image, caption = Path(found["image"]).name, found["caption"]
        people = named(files[image]), named([caption])
        table.writerow([image, caption, found["confidence"], *people])


if __name__ == "__main__":
    main()
