"""How often attention finds the dog's frame: `python measure.py CLIPS/dogs.csv RUN ...` prints CSV.

For each test caption, three frames are compared with the dog's: that of the word with the sharpest
attention, that at which the mean over all words peaks, and that of the word "dog". Values are
percentages of the captions; chance is 6.2.
"""

import csv
import sys
from pathlib import Path

import numpy as np
import yaml

from captioning.runs.evaluation.attention_file import read


def main(dogs: Path, runs: list[Path]) -> None:
    places = {row["clip"]: int(row["frame"]) for row in csv.DictReader(dogs.open())}
    print("model,seed,captions,sharpest word,mean of words,word dog,weight on the frame")
    for run in runs:
        config = yaml.safe_load((run / "config.yaml").read_text())
        kept = [caption for caption in read(run / "attention.npz") if caption.words]
        maps = [caption.maps["mean"][:, 0] for caption in kept]
        true = [places[str(caption.image_id)] for caption in kept]
        sharpest = [each[each.max(axis=1).argmax()].argmax() for each in maps]
        mean = [each.mean(axis=0).argmax() for each in maps]
        named = [
            (each[caption.words.index("dog")].argmax(), place)
            for caption, each, place in zip(kept, maps, true, strict=True)
            if "dog" in caption.words
        ]
        weight = np.mean([each.mean(axis=0)[place] for each, place in zip(maps, true, strict=True)])
        scores = [
            np.mean(np.equal(sharpest, true)),
            np.mean(np.equal(mean, true)),
            np.mean([a == b for a, b in named]),
        ]
        told = ",".join(f"{100 * score:.1f}" for score in (*scores, weight))
        print(f"{config['choices']['model']},{config['seed']},{len(kept)},{told}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
