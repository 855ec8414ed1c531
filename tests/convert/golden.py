"""What the projects' own code computed for small random checkpoints of theirs.

N captions of T words each.
"""

import json
from pathlib import Path

import torch

from captioning.captioner import TrainedCaptioner
from captioning.convert.__main__ import run_settings
from captioning.convert.source import Converted
from captioning.convert.write import write_captioner
from captioning.tokens import BOS, EOS

PUBLISHED = Path(__file__).parent / "published"


def expected(name: str) -> dict:
    return json.loads((PUBLISHED / name / "expected.json").read_text())


def captioner(converted: Converted, folder: Path, **decoding) -> TrainedCaptioner:
    """The captioner of a checkpoint that is written and read again."""
    path = folder / "checkpoints" / "best.ckpt"
    if not path.exists():
        folder.mkdir(exist_ok=True)
        write_captioner(path, run_settings(converted.settings), converted, path)
    return TrainedCaptioner.from_checkpoint(path, "cpu", decoding)


def log_probabilities(loaded: TrainedCaptioner, context, captions: list[str]) -> torch.Tensor:
    """`[N, T + 1]`, of each word of the given captions and of their ends."""
    ids = [loaded.vocabulary.encode(caption.split()) for caption in captions]
    tokens = torch.tensor([[BOS, *caption] for caption in ids])[:, None]
    model = loaded.first.model
    with torch.no_grad():
        logits = model.readout(model(context, tokens).hidden)[:, 0].log_softmax(-1)
    targets = torch.tensor([[*caption, EOS] for caption in ids])
    return logits.gather(-1, targets[..., None])[..., 0]
