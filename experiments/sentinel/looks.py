"""Which words look? The share of the image, 1 - beta, by kind of word, on drawn scenes.

    python experiments/sentinel/looks.py runs/sentinel

Reads every run of `model=adaptive` below the folder, decodes nothing: the words are those of its
`captions.jsonl`, each given the words before it. Prints the mean over words of each kind for each
run, and writes `looks.csv` and `looks.png` (the first captions of the first run) there.
"""

import csv
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import captioning
from captioning.captioner import TrainedCaptioner
from captioning.data.shapes.scene import COLOURS, SHAPES, SIZES
from captioning.tokens import BOS

KINDS = {
    "colour": set(COLOURS),
    "shape": set(SHAPES),
    "size": {*SIZES},
    "place": {"left", "right", "above", "below", "top", "bottom", "middle", "corner", "centre"},
}
SHOWN = 4


def kind(word: str) -> str:
    return next((name for name, words in KINDS.items() if word in words), "function")


@torch.no_grad()
def looks(captioner: TrainedCaptioner, image: Path, words: list[str]) -> list[float]:
    """1 - beta of each word, given the words before it."""
    (network,) = captioner.networks
    pixels = torch.stack(captioner.preprocess(image))
    context = network.backbone.context_of(pixels, True)
    tokens = torch.tensor([[[BOS, *captioner.vocabulary.encode(words)[:-1]]]])
    shares = network.model.attention_shares(context, tokens)["image"]
    return [float(share) for share in shares[0, 0]]


def words_of(folder: Path) -> Iterator[tuple[Path, list[str], list[float]]]:
    captioner = captioning.load(folder / "checkpoints" / "best.ckpt", "cpu")
    root = Path(captioner.config["data"]["reader"].get("root") or "")
    for line in (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        image, words = root / record["photograph"], record["caption"].split()
        yield image, words, looks(captioner, image, words)


def draw(rows: list[tuple[Path, list[str], list[float]]], path: Path) -> None:
    """Captions as bars: how much each word looked."""
    figure, axes = plt.subplots(len(rows), 2, figsize=(11, 2.1 * len(rows)), width_ratios=(1, 5))
    for (image, words, shares), (left, right) in zip(rows, axes, strict=True):
        left.imshow(plt.imread(image))
        left.axis("off")
        right.bar(range(len(words)), shares, color="#4477aa")
        right.set_xticks(range(len(words)), words, fontsize=11)
        right.set_ylim(0, 1)
        right.set_ylabel("1 - beta")
        right.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main(folder: Path) -> None:
    runs = sorted(path.parent for path in folder.glob("*/captions.jsonl"))
    table, first = [], []
    for run in runs:
        shares = defaultdict(list)
        for number, (image, words, looked) in enumerate(words_of(run)):
            if run == runs[0] and number < SHOWN:
                first.append((image, words, looked))
            for word, share in zip(words, looked, strict=True):
                shares[kind(word)].append(share)
        means = {name: statistics.fmean(shares[name]) for name in (*KINDS, "function")}
        counts = {f"{name} words": len(shares[name]) for name in means}
        table.append({"run": run.name, **means, **counts})
        print(run.name, {name: round(mean, 3) for name, mean in means.items()})
    with (folder / "looks.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    draw(first, folder / "looks.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
