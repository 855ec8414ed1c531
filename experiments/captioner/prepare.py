"""Flickr8k as the records use it, from the published images.

    python experiments/captioner/prepare.py data/flickr8k FOLDER [NAMES]

Writes copies squashed to 224 x 224 pixels, JPEG of quality 75, and the splits. NAMES is a file of
images to leave out, such as experiments/robustness/flickr8k.txt. The copies of the records were
made with an unknown filter: Pillow's Hamming filter is closest, 3 of 255 away on average.
"""

import json
import sys
from pathlib import Path

from PIL import Image


def main(source: Path, folder: Path, left_out: set[str]) -> None:
    splits = json.loads((source / "dataset_flickr8k.json").read_text(encoding="utf-8"))
    splits["images"] = [image for image in splits["images"] if image["filename"] not in left_out]
    (folder / "images").mkdir(parents=True, exist_ok=True)
    (folder / "dataset_flickr8k.json").write_text(json.dumps(splits), encoding="utf-8")
    for image in splits["images"]:
        with Image.open(source / "images" / image["filename"]) as photograph:
            small = photograph.convert("RGB").resize((224, 224), Image.Resampling.HAMMING)
            small.save(folder / "images" / image["filename"], "JPEG", quality=75)


if __name__ == "__main__":
    source, folder, *names = map(Path, sys.argv[1:])
    main(
        source,
        folder,
        {name for path in names for name in path.read_text(encoding="utf-8").split()},
    )
