"""What tests of `evaluate` share: files of captions and references, and what it leaves."""

from pathlib import Path

from json_files import read_json
from support import captions_of

from captioning.metrics.wording import wording

REFERENCES = {
    31: ["A man's dog runs across the green field.", "The dog is running; it looks happy!"],
    7: [
        "Two well-dressed people are standing in front of a bus",
        'A "no parking" sign next to two people.',
    ],
    500: ["A RED double-decker bus drives down the street...", "red bus (London) on a street"],
    2: [
        "3 1/2 pizzas on a table at 7:30 p.m.",
        "Some pizza on a wooden table.",
        "Half-eaten pizza, $5.99",
    ],
    8: ["A café table with two croissants", "Two croissants on a plate in a café."],
}
OURS = {
    2: "Pizza on a table",
    7: "two people next to a sign",
    8: "croissants in a CAFÉ",
    31: "A dog is running.",
    500: "a bus",
}
BLEU = [f"BLEU-{n}" for n in range(1, 5)]
QUICK = "metrics=[BLEU]"
BOTH = "metrics=[BLEU,CIDEr]"
FILES = ["captions=ours.json", "references=references.json"]
WORDING = set(wording([["a", "dog"]]))
AGAINST_TRAINING, ENTROPY = {"novel", "unseen pairs"}, {"first word entropy", "word entropy"}
COUNTS = "images", "images_with_references", "captions_left_out"


def read(name):
    """Scores, provenance and captions of a folder below `runs`."""
    record = read_json(Path("runs") / name / "scores.json")
    return record["scores"], record["provenance"], captions_of(Path("runs") / name)
