"""Make clips of images: `python make.py FLICKR8K OUTPUT`.

FLICKR8K holds dataset_flickr8k.json and images/. A clip is 16 images of Flickr8k, as links: one
shows a dog, and no caption of the others mentions an animal. The captions of the clip are those of
the image with the dog; `dogs.csv` has its position in each clip.
"""

import csv
import json
import random
import sys
from pathlib import Path

DOGS = {"dog", "dogs", "puppy", "puppies"}
ANIMALS = """
animal animals bear bird birds bull bulls calf camel camels cat cats cow cows duck ducks elephant
elephants fish
goat goats goose geese horse horses kitten lamb lion monkey pig pony rabbit retriever seagull
seagulls sheep
shepherd greyhound greyhounds poodle collie terrier labrador lab hound canine pup pups tiger zebra
wolf flamingo
pigeon pigeons spaniel bulldog dalmatian husky boxer doberman pug corgi chihuahua beagle rottweiler
squirrel
deer
"""
FRAMES = 16
CLIPS = {"train": 600, "val": 100, "test": 200}
OTHERS = {"train": 500, "val": 200, "test": 250}
"""Photographs without an animal, of which clips take 15 each."""


def main(flickr8k: Path, output: Path) -> None:
    images = json.loads((flickr8k / "dataset_flickr8k.json").read_text())["images"]
    animals = DOGS | set(ANIMALS.split())
    rows, places = [["image", "caption"]], [["clip", "frame"]]
    for split, count in CLIPS.items():
        rng = random.Random(split)
        own = sorted(
            (image for image in images if image["split"] == split),
            key=lambda image: image["filename"],
        )
        words = {
            image["filename"]: [set(sentence["tokens"]) for sentence in image["sentences"]]
            for image in own
        }
        dogs = [
            image
            for image in own
            if sum(bool(each & DOGS) for each in words[image["filename"]]) >= 3
        ]
        others = [name for name, said in words.items() if not any(each & animals for each in said)]
        rng.shuffle(dogs)
        others = rng.sample(others, OTHERS[split])
        names = []
        for image in dogs[:count]:
            place, frames = rng.randrange(FRAMES), rng.sample(others, FRAMES - 1)
            frames.insert(place, image["filename"])
            clip = Path(image["filename"]).stem
            folder = output / "clips" / clip
            folder.mkdir(parents=True)
            for number, frame in enumerate(frames):
                (folder / f"{number:02d}.jpg").symlink_to((flickr8k / "images" / frame).resolve())
            rows += [[clip, sentence["raw"]] for sentence in image["sentences"]]
            places.append([clip, str(place)])
            names.append(clip)
        (output / f"{split}.txt").write_text("\n".join(names))
        print(f"{split}: {len(names)} clips, {len(others)} photographs without an animal")
    for name, content in (("captions.txt", rows), ("dogs.csv", places)):
        with (output / name).open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
