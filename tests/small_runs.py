"""The two small runs of the fixtures `shapes_run` and `cached_run`, each trained in a folder."""

import shutil
from pathlib import Path

import torch
import torchvision
from processes import run
from support import FROZEN, LONGER, TINY, WORLD, CachedRun, Run, captions_of, flickr8k, folder_of

from captioning.backbones.torchvision import TorchvisionBackbone


def on_shapes(folder):
    (folder / "trained").mkdir()
    ended = run(folder / "trained", *WORLD)
    home = (folder / "trained").rename(folder / "home")
    where = folder_of(home, ended)
    moved = Path(shutil.copytree(next(home.glob("cache/**/test")), folder / "moved"))
    checkpoint = Path(shutil.copy(where / "checkpoints" / "best.ckpt", moved))
    captions = [line["caption"] for line in captions_of(where)]
    photographs = sorted(moved.glob("*.png"))
    assert len(photographs) == len(captions)
    return Run(checkpoint, photographs, captions, home, where, ended.stdout, ended.stderr)


def on_cached_features(folder):
    trained, moved = folder / "trained", folder / "moved"
    flickr8k(trained / "data")
    with torch.random.fork_rng():
        torch.manual_seed(5)
        network = torchvision.models.squeezenet1_1(weights=None)
    torch.save(network.state_dict(), trained / "weights.pt")
    views = ["backbone.weights=weights.pt", "data.views=2", "data/view=mirrored"]
    ended = run(trained, *TINY, *LONGER, *FROZEN, *views, "optimizer.lr=0.01")
    digest = TorchvisionBackbone(
        "squeezenet1_1", "features.12", str(trained / "weights.pt"), size=48
    ).digest
    moved.mkdir()
    shutil.move(trained / "weights.pt", moved)
    home = trained.rename(folder / "home")
    where = folder_of(home, ended)
    checkpoint, photograph = (
        Path(shutil.copy(path, moved))
        for path in (where / "checkpoints" / "best.ckpt", home / "data/images/5.jpg")
    )
    captions = [line["caption"] for line in captions_of(where)]
    return CachedRun(
        checkpoint, [photograph], captions, home, where, ended.stdout, ended.stderr, digest
    )
