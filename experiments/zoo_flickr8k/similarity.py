"""CIDEr of test images by their similarity to the training images.

    python experiments/zoo_flickr8k/similarity.py CACHE RUN [RUN ...]

Test images are divided into fifths by the cosine to their nearest training image. It compares mean
features, less the mean over the training split. Prints one row per fifth: smallest and largest
cosine, and CIDEr of each run. CACHE is the cache folder; the features are those of the first run.
"""

import sys
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from torch.nn.functional import normalize

from captioning.config.schemas.run import RunSettings
from captioning.config.settings import check_settings
from captioning.data.words import Language
from captioning.features.build import FeatureStore
from captioning.files import markdown_table
from captioning.runs.evaluation.captions import add_scores, read_records
from captioning.training import setup

PARTS = 5


def nearest(config: DictConfig, cache: Path) -> dict[str, float]:
    """Of each test photograph the cosine of its nearest training photograph."""
    settings = check_settings(RunSettings, config)
    parts = setup.check_parts(settings)
    splits, backbone = (
        setup.read_training_data(settings, parts),
        setup.build_backbone(settings, parts),
    )
    backbone.prepare(splits)
    means: dict[str, Tensor] = {
        name: backbone.open_inputs(splits[name], FeatureStore(cache), name)
        .rows(range(len(splits[name])))
        .float()
        .mean(dim=1)
        for name in ("train", "test")
    }
    train, test = (
        normalize(each - means["train"].mean(dim=0), dim=1)
        for each in (means["train"], means["test"])
    )
    cosines = torch.cat([(rows @ train.T).amax(dim=1) for rows in test.split(100)])
    return dict(
        zip((str(example.image_id) for example in splits["test"]), cosines.tolist(), strict=True)
    )


def cider(run: Path, cache: Path) -> dict[str, float]:
    """Of each photograph."""
    lines = read_records(run)
    add_scores(lines, ["CIDEr"], Language(), cache)
    return {str(line.image_id): line.scores["CIDEr"] for line in lines}


def main(cache: Path, *runs: Path) -> None:
    """Prints the table."""
    cosine = nearest(OmegaConf.load(runs[0] / "config.yaml"), cache)  # type: ignore[arg-type]
    order = sorted(cosine, key=cosine.__getitem__)
    scores = [cider(run, cache) for run in runs]
    rows = []
    for part in range(PARTS):
        names = order[len(order) * part // PARTS : len(order) * (part + 1) // PARTS]
        means = [sum(each[name] for name in names) / len(names) for each in scores]
        rows.append(
            [
                f"{cosine[names[0]]:.2f} to {cosine[names[-1]]:.2f}",
                *(f"{mean:.1f}" for mean in means),
            ]
        )
    print(markdown_table(["cosine", *(run.name for run in runs)], rows))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
