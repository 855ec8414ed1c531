"""The instrument runs, and counts what it says it counts."""

import re
import subprocess
import sys
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from torch.utils.flop_counter import FlopCounterMode

from captioning.backbones.context import ContextSet
from captioning.benchmark import random_batch
from captioning.command import CONF

SMALL = [
    "model.d_feat=16",
    "model.heads=2",
    "model.d_hidden=24",
    "batch.images=3",
    "batch.captions=2",
    "context.grid=[3,4]",
    "context.features=16",
    "vocab_size=50",
]


def test_one_line_per_measurement(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "captioning.benchmark", *SMALL, "repeats=2", "device=cpu"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r"training, 32-true +\d+\.\d captions/s .* of the matrix-multiply peak", done.stdout)
    assert re.search(r"training, bf16-mixed +(\d+\.\d captions/s|left out: this CPU has no bfloat16)", done.stdout)
    assert len(re.findall(r"decoding, (greedy|beam 3) +\d+\.\d images/s", done.stdout)) == 2
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_counted_arithmetic_by_hand() -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("benchmark", SMALL)
    batch = random_batch(config)
    grid = (3, 4)
    model = instantiate(config.model, vocab_size=50, d_context=16, grid=grid)
    with FlopCounterMode(display=False) as counter:
        hidden = model(ContextSet(batch.inputs, grid), batch.sources).hidden.flatten(0, 2)[batch.word_index]
        model.readout(hidden)
    b, n, c = batch.sources.shape
    e, hidden_width, positions, vocabulary = 16, 24, 12, 50
    encoder = b * positions * (4 * e * e + 2 * e * hidden_width) + b * 2 * positions * positions * e
    image = b * positions * 2 * e * e
    text = b * n * c * (4 * e * e + 2 * e * e + 2 * e * hidden_width) + b * n * 2 * c * c * e
    inter = b * n * c * 2 * positions * e
    readout = len(batch.word_index) * e * vocabulary
    assert counter.get_total_flops() == 2 * (2 * encoder + 4 * (image + text + inter) + readout)
