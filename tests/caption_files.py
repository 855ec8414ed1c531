"""Files of captions and references, as other programs write them."""

import csv
from pathlib import Path

from json_files import write_json


def results(path, captions):
    """COCO's results format."""
    entries = [{"image_id": image, "caption": text} for image, text in captions.items()]
    write_json(path, entries)


def annotations(path, references):
    """COCO's annotations; a file is called as its image."""
    images = [{"id": image, "file_name": f"{image}.png"} for image in references]
    texts = [(image, text) for image, each in references.items() for text in each]
    entries = [
        {"id": number, "image_id": image, "caption": text}
        for number, (image, text) in enumerate(texts)
    ]
    write_json(path, {"images": images, "annotations": entries})


def instances(path, objects):
    """COCO's annotated objects, with more in them than is read."""
    names = sorted({name for each in objects.values() for name in each})
    content = {
        "categories": [
            {"id": 2 * n, "name": name, "supercategory": "?"} for n, name in enumerate(names)
        ],
        "annotations": [
            {"image_id": image, "category_id": 2 * names.index(name), "bbox": [1, 2, 3, 4.5]}
            for image, each in objects.items()
            for name in each
        ],
        "images": [{"id": image, "file_name": f"{image}.jpg"} for image in objects],
    }
    write_json(path, content)


def table(path, references):
    """A row for each caption, separated by tabs in a `.tsv`."""
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.endswith(".tsv") else ",")
        writer.writerow(["image", "caption"])
        writer.writerows([name, text] for name, texts in references.items() for text in texts)
