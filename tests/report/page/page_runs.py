"""Runs as the page finds them: two systems on grey photographs, one of which looks at a corner for each word."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml
from PIL import Image

from captioning.report.compare import compare
from captioning.report.figures import as_svg, curves
from captioning.report.page import Table, write_page
from captioning.report.published import PUBLISHED
from captioning.report.runs import find_runs
from captioning.report.systems import group
from captioning.runs.attention_file import KeptCaption, write

GREY = 100
CORNERS = ((0, 0), (0, 3), (3, 0), (3, 3))
"""Rows and columns of a 4 x 4 grid: where the mean looks at the first word, the second ..."""
HEAD = (1, 1)
"""Where the one head looks that is kept beside the mean."""
REFERENCES = [["a man on a horse", "a man rides"], ["two dogs", "dogs play"], ["a red bus", "the bus is red"]]
SAID = ["a man rides", "two dogs play", "a red bus"]


def write_run(
    folder: Path, model: str, bleu: float, captions: Sequence[str], ciders: Sequence[float], root: Path, seed: int = 1
) -> Path:
    """A tested run on photographs `1.png`, `2.png`, ... below `root`."""
    place = folder / (f"flickr8k-{model}" if seed == 1 else f"flickr8k-{model}-seed{seed}")
    place.mkdir(parents=True)
    config = {"name": "flickr8k", "choices": {"model": model, "data": "flickr8k"}, "model": {"size": len(model)}}
    config |= {"seed": seed, "test": True, "data": {"root": str(root.parent), "reader": {"root": str(root)}}}
    (place / "config.yaml").write_text(yaml.safe_dump(config))
    (place / "metrics.csv").write_text("epoch,seconds,val/CIDEr,val/nll\n0,60,20,2.5\n1,120,30,2\n")
    provenance = {
        "data_digest": "d1",
        "parameters": {"trainable": 1234567},
        "device": "a machine",
        "seconds_to_best": 9.0,
    }
    scores = {"BLEU-4": bleu, "CIDEr": float(np.mean(ciders)), "attention entropy": 1.0}
    if model == "lstm":
        del scores["attention entropy"]
    (place / "scores.json").write_text(json.dumps({"scores": scores, "provenance": provenance}))
    lines = [
        {"image_id": i, "caption": caption, "references": REFERENCES[(i - 1) % 3], "scores": {"CIDEr": cider}}
        | {"photograph": f"{i}.png"}
        for i, (caption, cider) in enumerate(zip(captions, ciders, strict=True), start=1)
    ]
    (place / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place


def write_photographs(root: Path, number: int) -> None:
    """Grey ones, twice as wide as high."""
    root.mkdir(parents=True)
    for i in range(1, number + 1):
        Image.new("RGB", (400, 200), (GREY, GREY, GREY)).save(root / f"{i}.png")


def looks(place: tuple[int, int]) -> np.ndarray:
    """A map of 4 x 4 with most of its weight at one place, 255 times what is beside it 5 times."""
    found = np.full((4, 4), 5 / 330, np.float32)
    found[place] = 255 / 330
    return found


def keep_maps(run: Path, captions: Sequence[str], attended: bool = False) -> None:
    """`attention.npz` of captions of at most four words: the mean looks into the corners, the head beside one.

    With `attended` hard attention has taken the cell of the head each time but the first, when it took the corner.
    """
    kept = []
    for i, caption in enumerate(captions, start=1):
        words = tuple(caption.split())
        mean = np.stack([looks(corner) for corner, _ in zip(CORNERS, words, strict=False)])
        head = np.stack([looks(HEAD)] * len(words))
        taken = (np.stack([mean[0], *head[1:]]) == 255 / 330).astype(np.float32)
        hard = {"attended": taken} if attended else {}
        kept.append(KeptCaption(i, words, {"mean": mean, **hard, "inter 1 1": head}))
    write(run / "attention.npz", kept)


def page_of(
    runs: Path, output: Path, photographs: str | None = "auto", inside: float = 10.0, side: int = 200, heads: int = 50
) -> tuple[str, list[str]]:
    """What `index.html` of these runs holds, and what was left out of it."""
    systems = group(find_runs(runs)[0])
    output.mkdir(parents=True, exist_ok=True)
    compared, _ = compare(systems, [], samples=200, seed=0)
    table = Table("flickr8k", systems, PUBLISHED["flickr8k"][:1], compared, as_svg(curves(systems)))
    settings = {"photographs": photographs, "side": side, "inside": inside, "heads": heads}
    left_out = write_page(output, [table], cider=None, samples=200, **settings)
    return (output / "index.html").read_text(), left_out
