"""Exact translations and alignment accuracy as CSV: `alignment.py [runs/two_languages]`.

Alignment is measured on the references of the test split: the share of words at whose step the
largest weight is on the source word that they translate. "repeated" counts only words whose source
word occurs at least twice in its sentence.
"""

import csv
import json
import sys
from pathlib import Path

import torch
from artificial_languages import TwoLanguages, translation

import captioning
from captioning.features.build import FeatureStore
from captioning.tokens import BOS


@torch.no_grad()
def alignment(checkpoint: Path) -> tuple[float, float]:
    captioner = captioning.load(checkpoint, "cpu", modules=["experiments.two_languages.sentences"])
    backbone, model = captioner.networks[0].backbone, captioner.networks[0].model
    reader = {
        key: value for key, value in captioner.config["data"]["reader"].items() if key != "_target_"
    }
    examples = TwoLanguages(**reader)()["test"]
    inputs = backbone.open_inputs(examples, FeatureStore(Path("cache")), "test")
    hits, repeated = [], []
    for row, example in enumerate(examples):
        words, places = translation(example.source)
        tokens = torch.tensor([[[BOS, *captioner.vocabulary.encode(words[:-1])]]])
        context = backbone.context_of(inputs.rows([row]))
        peaks = model(context, tokens, need_weights=True).attention[0, 0].argmax(dim=-1).tolist()
        hits += [peak == place for peak, place in zip(peaks, places, strict=True)]
        repeated += [example.source.count(example.source[place]) > 1 for place in places]
    twice = [hit for hit, again in zip(hits, repeated, strict=True) if again]
    return 100 * sum(hits) / len(hits), 100 * sum(twice) / len(twice)


def main() -> None:
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(
        [
            "system",
            "seed",
            "BLEU-4",
            "sacreBLEU",
            "exact",
            "alignment",
            "alignment of repeated words",
        ]
    )
    for folder in sorted(
        path.parent for path in Path(*sys.argv[1:2] or ["runs/two_languages"]).glob("*/scores.json")
    ):
        content = json.loads((folder / "scores.json").read_text())
        lines = [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]
        exact = 100 * sum(line["caption"] in line["references"] for line in lines) / len(lines)
        found = [content["scores"]["BLEU-4"], content["scores"]["sacreBLEU"], exact]
        found += alignment(folder / "checkpoints" / "best.ckpt")
        name, _, seed = folder.name.partition("-seed")
        table.writerow([name, seed, *(f"{number:.1f}" for number in found)])


if __name__ == "__main__":
    main()
