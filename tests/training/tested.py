"""A model whose captions and attention are known, tested once by a real trainer with all callbacks of a test."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import lightning as L
import torch
from PIL import Image
from torch import Tensor, nn

from captioning.backbones.context import ContextSet
from captioning.data.example import Example, Noun, Reference
from captioning.data.module import CaptionData
from captioning.data.vocabulary import Vocabulary
from captioning.models.protocol import CaptionOutput, Step
from captioning.tokens import EOS

from .world import DIM, GRID, WORDS, data, module, trainer

SAID = ["red", "square", "left"]
CELLS = [4, 0, 8, 2, 4]
"""Where the features of each of the five test images are largest, in the 3 x 3 grid."""


class Spots:
    """Context vectors that are 0 but for one cell's first feature."""

    pixels = False

    def rows(self, indices: list[int]) -> Tensor:
        features = torch.zeros(len(indices), GRID * GRID, DIM)
        features[torch.arange(len(indices)), torch.tensor(CELLS)[indices], 0] = 1.0
        return features


def cell_box(cell: int) -> tuple[float, float, float, float]:
    """In photographs twice as wide as high, of which the network sees the middle."""
    row, column = divmod(cell, GRID)
    return 0.25 + column / GRID / 2, row / GRID, 0.25 + (column + 1) / GRID / 2, (row + 1) / GRID


@dataclass
class State:
    attention: Tensor
    step: int = 0

    def reorder(self, parents: Tensor) -> Self:
        return self


class Pointer(nn.Module):
    """Says SAID for every image and looks where the features are largest, with weight e^sharpness."""

    max_tokens = 6
    sharpness = 10.0

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def _attention(self, context: ContextSet) -> Tensor:
        return (self.sharpness * context.vectors[..., 0]).softmax(dim=-1)  # [B, L]

    def forward(self, context: ContextSet, tokens: Tensor, need_weights: bool = False) -> CaptionOutput:
        maps = self._attention(context)[:, None, None].expand(*tokens.shape, -1)
        return CaptionOutput(self.weight.expand(*tokens.shape, 1), maps if need_weights else None)

    def readout(self, hidden: Tensor) -> Tensor:
        return hidden.expand(*hidden.shape[:-1], len(WORDS) + 4)

    def start(self, context: ContextSet, n: int) -> State:
        return State(self._attention(context)[:, None].expand(-1, n, -1))

    def step(self, tokens: Tensor, state: State) -> Step:
        ids = [*Vocabulary(WORDS).encode(SAID), EOS]
        logits = torch.zeros(*tokens.shape, len(WORDS) + 4)
        logits[..., ids[state.step]] = 9.0
        return Step(logits, state.attention, State(state.attention, state.step + 1))

    def attention_maps(self, context: ContextSet, tokens: Tensor) -> dict[str, Tensor]:
        maps = self._attention(context)[:, None, None].expand(*tokens.shape, -1)
        return {"spot": torch.stack([maps, torch.full_like(maps, 1 / maps.shape[-1])], dim=-2)}


def photographs(folder: Path) -> list[Example]:
    """Five photographs; the first caption names an object in the bright cell, the second one in cell 0."""
    found = []
    for i, cell in enumerate(CELLS):
        path = folder / f"picture {i}.png"
        Image.new("RGB", (24, 12), (20 * i, 50, 90)).save(path)
        first = Reference("A red square, left!", ("red", "square", "left"), (Noun(1, cell_box(cell)),))
        second = Reference("disc and a rather long\u2028rest", ("disc",), (Noun(0, cell_box(0)),))
        found.append(Example(f"folder/{i}.jpg" if i else 77, path, (first, second)))
    return found


def spotted(folder: Path, examples: list[Example] | None = None) -> tuple[dict[str, list[Example]], CaptionData]:
    """The five photographs as every split, in batches of 4 and 1."""
    splits = dict.fromkeys(("train", "val", "test"), examples or photographs(folder))
    found = data(splits, eval_batch_size=4)
    for dataset in found.datasets.values():
        dataset.inputs = Spots()
    return splits, found


def run_test(
    folder: Path, callbacks: list[L.Callback], examples: list[Example] | None = None, **settings: Any
) -> L.Trainer:
    """Tests the pointer on the five photographs."""
    splits, images = spotted(folder, examples)
    run = trainer(precision="32-true", callbacks=callbacks)
    found = module(Pointer(), splits=splits, **settings)
    found.backbone.transform = replace(found.backbone.transform, resize="crop")
    run.test(found, images, verbose=False)
    return run
