"""Compare converted checkpoints with what their projects' own code computed for them.

    PYTHONPATH=.:tests python -m experiments.published_code.checkpoints > checkpoints.csv

The checkpoints are small random ones, of the tests. Prints CSV: the largest difference of the
log-probabilities of given captions, and how many captions are equal, of all searches together.
"""

import csv
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import torch
from convert import test_self_critical as self_critical
from convert.golden import PUBLISHED, captioner, expected, log_probabilities

from captioning.backbones.context import ContextSet
from captioning.captioner import TrainedCaptioner
from captioning.convert.sources import meshed_memory, sgrvinod
from captioning.decoding import beam_search


def compared(folder: Path) -> Iterator[tuple[str, TrainedCaptioner, Any]]:
    """Name, captioner and context set of each checkpoint."""
    for name in self_critical.SYSTEMS:
        full = f"self_critical-{name}"
        loaded = self_critical.loaded_of(name, folder)
        yield full, loaded, self_critical.context_of(name, expected(full)["images"])
    files = PUBLISHED / "meshed_memory"
    images, heads = (expected("meshed_memory")[key] for key in ("images", "heads"))
    paths = files / "meshed_memory_transformer.pth", files / "vocab.pkl"
    vectors = torch.zeros(len(images), 12, 24)
    with h5py.File(files / "coco_detections.hdf5") as file:
        for row, image in zip(vectors, images, strict=True):
            regions = torch.from_numpy(file[f"{image}_features"][()])
            row[: len(regions)] = regions
    loaded = captioner(meshed_memory.convert(*paths, heads), folder / "meshed_memory")
    yield "meshed_memory", loaded, ContextSet(vectors, (1, 12))
    files = PUBLISHED / "sgrvinod"
    paths = next(files.glob("*.tar")), next(files.glob("WORDMAP*"))
    loaded = captioner(sgrvinod.convert(*paths), folder / "sgrvinod")
    images = [files / "images" / name for name in expected("sgrvinod")["images"]]
    pixels = torch.stack([loaded.preprocess(image)[0] for image in images])
    yield "sgrvinod", loaded, loaded.first.backbone.context_of(pixels)


def caption_of(golden: str | dict[str, Any]) -> str:
    """The text of a golden caption."""
    return golden if isinstance(golden, str) else golden["caption"]


@torch.no_grad()
def main() -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["checkpoint", "largest difference", "captions", "equal captions", "searches"])
    with tempfile.TemporaryDirectory() as folder:
        for name, loaded, context in compared(Path(folder)):
            golden = expected(name)
            found = log_probabilities(loaded, context, golden["given"])
            difference = (found - torch.tensor(golden["log_probs"])).abs().max().item()
            beams = dict(golden["beam"])
            if "greedy" in golden:
                beams["1"] = golden["greedy"]
            equal = total = 0
            for width, captions in beams.items():
                longest = loaded.config["decoding"]["max_length"]
                ours = beam_search(
                    loaded.first.model, context, int(width), longest, length_penalty=0.0
                )
                texts = [loaded.vocabulary.decode(caption.tokens) for caption in ours]
                equal += sum(map(str.__eq__, texts, map(caption_of, captions)))
                total += len(texts)
            widths = " ".join(sorted(beams))
            writer.writerow([name, f"{difference:.1e}", total, equal, widths])


if __name__ == "__main__":
    main()
