"""Which words look? The share of the image, 1 - beta, by word and by kind of word.

    python experiments/sentinel/looks.py RUNS OUTPUT

Reads every run of `model=adaptive` below RUNS, and decodes nothing: the words are those of its
`captions.jsonl`, each given the words before it. Writes into OUTPUT `kinds.csv`, the mean over the
words of each kind for each run; `words.csv`, the mean of every word that is written at least 30
times, over all runs; and of the first run the maps of a few captions with 1 - beta under each word.
"""

import csv
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch

import captioning
from captioning.captioner import TrainedCaptioner
from captioning.data.shapes.scene import COLOURS, SHAPES, SIZES
from captioning.report.panels import save_panel
from captioning.runs.evaluation import attention_file
from captioning.tokens import BOS

# of drawn scenes, and of photographs where their captions have the same words
KINDS = {
    "colour": {*COLOURS, "white", "black", "brown", "blonde", "pink", "grey", "gray"},
    "shape": set(SHAPES),
    "size": {*SIZES},
    "number": {"one", "two", "three", "four", "several", "many", "group"},
    "place": {"left", "right", "above", "below", "top", "bottom", "middle", "corner", "centre"},
    "article": {"a", "an", "the"},
    "preposition": {"in", "on", "at", "of", "with", "through", "over", "by", "into", "near", "to"},
    "verb": {"is", "are", "there"},
}
OFTEN = 30
SHOWN = 4


def kind(word: str) -> str:
    return next((name for name, words in KINDS.items() if word in words), "other")


@torch.no_grad()
def looks(captioner: TrainedCaptioner, image: Path, words: list[str]) -> list[float]:
    """1 - beta of each word, given the words before it."""
    (network,) = captioner.networks
    pixels = torch.stack(captioner.preprocess(image))
    context = network.backbone.context_of(pixels)
    tokens = torch.tensor([[[BOS, *captioner.vocabulary.encode(words)[:-1]]]])
    shares = network.model.attention_shares(context, tokens)["image"]
    return [float(share) for share in shares[0, 0]]


def words_of(
    captioner: TrainedCaptioner, folder: Path
) -> Iterator[tuple[str, Path, list[str], list[float]]]:
    """Image id, image, words and their shares of each caption of a run."""
    root = Path(captioner.config["data"]["reader"].get("root") or "")
    for line in (folder / "captions.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        image, words = root / record["photograph"], record["caption"].split()
        yield str(record["image_id"]), image, words, looks(captioner, image, words)


def draw(folder: Path, captioner: TrainedCaptioner, output: Path) -> None:
    """The maps of the first captions, with 1 - beta under each word."""
    seen = {image: (path, shares) for image, path, _, shares in words_of(captioner, folder)}
    for number, record in enumerate(attention_file.read(folder / attention_file.FILE)[:SHOWN]):
        path, shares = seen[str(record.image_id)]
        labels = [f"{word} {share:.2f}" for word, share in zip(record.words, shares, strict=False)]
        transform = captioner.networks[0].backbone.transform
        photograph, maps = transform.whole(path, 450) / 255, torch.from_numpy(record.maps["mean"])
        save_panel(output / f"looks_{number + 1}.png", photograph, labels, maps[: len(labels)])


def write(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def main(folder: Path, output: Path) -> None:
    output.mkdir(exist_ok=True, parents=True)
    table, by_word = list[dict[str, object]](), defaultdict(list)
    for run in sorted(path.parent for path in folder.glob("*/captions.jsonl")):
        captioner = captioning.load(run / "checkpoints" / "best.ckpt", "cpu")
        if not table:
            draw(run, captioner, output)
        shares = defaultdict(list)
        for _, _, words, looked in words_of(captioner, run):
            for word, share in zip(words, looked, strict=True):
                shares[kind(word)].append(share)
                by_word[word].append(share)
        means = {name: round(statistics.fmean(shares[name]), 3) for name in sorted(shares)}
        table.append({"run": run.name, **means})
        print(run.name, means)
    write(output / "kinds.csv", table)
    ranked = sorted(
        (statistics.fmean(of), word) for word, of in by_word.items() if len(of) >= OFTEN
    )
    write(
        output / "words.csv",
        [
            {"word": word, "1 - beta": round(mean, 3), "times": len(by_word[word])}
            for mean, word in reversed(ranked)
        ],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
