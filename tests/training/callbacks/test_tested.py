"""What a test measures and leaves in the run folder, of a model whose captions and attention are
known.

One of nine cells has weight e^10, each of the others 1. `tests/report/test_panels.py` looks at the
pictures.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from json_files import read_json
from pictures import plain
from PIL import Image
from support import captions_of
from torch import Tensor, nn

from captioning.data.example import Example, Noun, Reference
from captioning.data.vocabulary import Vocabulary
from captioning.metrics import Metric
from captioning.models.protocol import Captioner, CaptionOutput, Step
from captioning.runs.evaluation.attention_file import read
from captioning.runs.folders.record import Record
from captioning.tokens import EOS
from captioning.training.callbacks.records import AttentionLogger, AttentionPanels, Results
from captioning.training.callbacks.statistics import LogAttentionStatistics, LogWording, Pointing
from captioning.training.callbacks.timing import Stopwatch
from captioning.training.callbacks.wandb import WandbRecord

from ..world import DIM, GRID, QUIET, WORDS, data, module, noted, trainer

pytestmark = QUIET
SAID = ["red", "square", "left"]
REFERENCES = ["A red square, left!", "disc and a rather long\u2028rest"]
CELLS = [4, 0, 8, 2, 4]
"""Where the features of each of the five test images are largest, in the 3 x 3 grid."""
WORDING = {"bad_endings": 0, "repeated": 0, "length": 3, "distinct-1": 20, "distinct-2": 20}
WORDING |= {"vocabulary used": 3, "novel": 0, "unseen pairs": 0, "ended": 100}
# teacher forcing finds the pointer's seven words and four tokens all alike
WORDING |= {"first word entropy": math.log(11), "word entropy": math.log(11)}


class Spots:
    """Context vectors that are 0 but for one cell's first feature; or of which image i has the
    first i + 2.
    """

    def __init__(self, partial):
        self.partial = partial

    def rows(self, indices):
        features = torch.zeros(len(indices), GRID * GRID, DIM)
        features[torch.arange(len(indices)), torch.tensor(CELLS)[indices], 0] = 1.0
        if self.partial:
            for row, i in enumerate(indices):
                features[row, i + 2 :] = math.nan
        return features


@dataclass
class State:
    attention: Tensor | None
    step: int = 0

    def reorder(self, parents):
        return self


class Pointer(Captioner):
    """Says SAID for every image and looks where the features are largest, with weight
    e^sharpness.
    """

    max_tokens = 6
    sharpness = 10.0
    blind = False  # without attention

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def _attention(self, context):
        if context.mask is not None:  # evenly at what is there
            return context.mask / context.mask.sum(dim=1, keepdim=True)
        return (self.sharpness * context.vectors[..., 0]).softmax(dim=-1)  # [B, L]

    def _maps(self, context, tokens):
        return self._attention(context)[:, None, None].expand(*tokens.shape, -1)

    def forward(self, context, tokens, need_weights=False):
        maps = self._maps(context, tokens) if need_weights else None
        return CaptionOutput(self.weight.expand(*tokens.shape, 1), maps)

    def readout(self, hidden):
        return hidden.expand(*hidden.shape[:-1], len(WORDS) + 4)

    def start(self, context, n):
        return State(None if self.blind else self._attention(context)[:, None].expand(-1, n, -1))

    def step(self, tokens, state):
        ids = [*Vocabulary(WORDS).encode(SAID), EOS]
        logits = torch.zeros(*tokens.shape, len(WORDS) + 4)
        logits[..., ids[state.step]] = 9.0
        return Step(logits, state.attention, State(state.attention, state.step + 1))

    def attention_maps(self, context, tokens):
        maps = self._maps(context, tokens)
        return {"spot": torch.stack([maps, torch.full_like(maps, 1 / maps.shape[-1])], dim=-2)}


def photographs(folder, boxes=True):
    """Five photographs; the first caption names an object in the bright cell, the second one in
    cell 0.
    """

    def box(cell):
        """In photographs twice as wide as high, of which the network sees the middle."""
        row, column = divmod(cell, GRID)
        left, right = (0.25 + edge / GRID / 2 for edge in (column, column + 1))
        return left, row / GRID, right, (row + 1) / GRID

    found = []
    for i, cell in enumerate(CELLS):
        path = folder / f"picture {i}.png"
        plain(path, (24, 12), (20 * i, 50, 90))
        bright, other = ((Noun(1, box(cell)),), (Noun(0, box(0)),)) if boxes else ((), ())
        first = Reference(REFERENCES[0], tuple(SAID), bright)
        second = Reference(REFERENCES[1], ("disc",), other)
        name = f"folder/{i}.jpg" if i else 77
        found.append(Example(name, path, (first, second), group="bright" if i else ""))
    return found


def pointer(folder, boxes=True, partial=False, **settings):
    """The model, and the five photographs as every split, in batches of 4 and 1."""
    splits = dict.fromkeys(("train", "val", "test"), photographs(folder, boxes))
    images, found = data(splits, eval_batch_size=4), module(Pointer(), splits=splits, **settings)
    for dataset in images.datasets.values():
        dataset.inputs = Spots(partial)
    found.backbone.transform = replace(found.backbone.transform, resize="crop")
    found.backbone.partial = partial
    return found, images


def run_test(tested, *callbacks, folder=None):
    run = trainer(precision="32-true", callbacks=list(callbacks), default_root_dir=folder)
    run.test(*tested, verbose=False)
    return dict(run.callback_metrics)


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """A test with all callbacks of a test."""
    folder = tmp_path_factory.mktemp("tested")
    callbacks = [Pointing(), LogAttentionStatistics(), LogWording(), Stopwatch("val/CIDEr")]
    callbacks += [Results(folder), AttentionPanels(folder / "attention", images=3)]
    callbacks += [AttentionLogger(folder, images=3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LC_ALL", "C")
        Record(digests={"data": "1234"}).write(folder)
        module = pointer(folder, metrics=("BLEU", "CIDEr"))
        return folder, run_test(module, *callbacks, folder=folder)


def test_captions_scores_and_provenance(tested):
    folder, metrics = tested
    records = captions_of(folder)
    assert [line["image_id"] for line in records] == [77, *(f"folder/{i}.jpg" for i in range(1, 5))]
    assert [line.get("group") for line in records] == [None, *["bright"] * 4]
    for line in records:
        assert (line["caption"], line["references"]) == ("red square left", REFERENCES)
        assert set(line["scores"]) == {"BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr"}
    record = read_json(folder / "scores.json")
    scores, provenance = record["scores"], record["provenance"]
    assert record["groups"]["bright (4 images)"]["images"] == 4
    assert scores.pop("CIDEr") is None  # all images have the same references
    tested_names = {name.removeprefix("test/") for name in metrics if name.startswith("test/")}
    assert scores.pop("BLEU-4 (images shuffled)") == scores["BLEU-4"]  # of equal captions
    assert {"BLEU-4", "pointing", "length"} < set(scores) == tested_names
    assert scores["BLEU-1 (no brevity penalty)"] == pytest.approx(100)  # all words are there
    assert {"commit", "data_digest", "tokenizer", "seconds_to_best", "device"} <= set(provenance)
    assert {"python", "torch", "lightning", "pycocoevalcap"} <= set(provenance["versions"])
    assert provenance["parameters"]["trainable"] == 1 < provenance["parameters"]["frozen"]
    assert (provenance["precision"], provenance["processes"]) == ("32-true", 1)
    assert provenance["images_tested"] == provenance["images_of_split"] == 5


def test_maps_and_panels_of_the_first_images(tested):
    folder, _ = tested
    kept = read(folder / "attention.npz")
    assert [record.image_id for record in kept] == [77, "folder/1.jpg", "folder/2.jpg"]
    for record, cell in zip(kept, CELLS, strict=False):
        assert record.words == tuple(SAID)
        lit = np.where(np.arange(9) == cell, np.e**10, 1.0) / (np.e**10 + 8)
        expected = {"mean": lit, "spot 1": lit, "spot 2": np.full(9, 1 / 9)}
        assert list(record.maps) == list(expected)
        for name, weights in expected.items():
            every = np.broadcast_to(weights.reshape(3, 3), (3, 3, 3))
            np.testing.assert_allclose(record.maps[name], every, atol=1 / 510)
    for name in ("77", "folder_1.jpg", "folder_2.jpg"):
        assert (folder / "attention" / f"{name}.pdf").is_file()
        with Image.open(folder / "attention" / f"{name}.png") as panel:
            assert panel.width > 3 * panel.height / len(SAID)


class Interrupted(Metric):
    def compute(self, *_):
        raise KeyboardInterrupt


def test_no_images_no_files_and_captions_are_on_disk_when_scoring_is_interrupted(tmp_path):
    panels, maps = AttentionPanels(tmp_path / "attention", 0), AttentionLogger(tmp_path, 0)
    without_logger = WandbRecord(tmp_path / "run", images=2)
    Record(digests={"data": "1234"}).write(tmp_path)
    callbacks = (Results(tmp_path), panels, maps, without_logger)
    with pytest.raises(SystemExit):
        run_test(pointer(tmp_path, metrics=[Interrupted()]), *callbacks, folder=tmp_path)
    records = captions_of(tmp_path)
    assert [line["caption"] for line in records] == ["red square left"] * 5
    assert not any("scores" in line for line in records)
    for name in ("scores.json", "attention", "attention.npz", "run"):
        assert not (tmp_path / name).exists()


def expected(split, sharpness, coverage):
    total = math.exp(sharpness) + 8
    peak = math.exp(sharpness) / total
    entropy = -peak * math.log(peak) + 8 / total * math.log(total)
    values = {"entropy": entropy, "entropy variance": 0, "movement": 0, "coverage": coverage}
    named = {f"{split}/attention {name}": value for name, value in values.items()}
    return pytest.approx(named, rel=1e-4, abs=1e-9)  # single precision


def attention(metrics):
    return {name: float(value) for name, value in metrics.items() if "attention" in name}


def wording(metrics, split):
    return {name: float(metrics[f"{split}/{name}"]) for name in WORDING}


def test_statistics_of_the_test(tested):
    """Five images in two batches have the same three words; each first caption names the object in
    the bright cell.

    Of the photographs the network sees the middle, and boxes are of the whole. In place of the
    bright cells 4 0 8 2 4 the shuffled images have 0 8 2 4 4, so that of the first captions the
    last hits. Second captions name the object in cell 0, bright in one image, and in one of the
    shuffled ones.
    """
    _, metrics = tested
    assert attention(metrics) == expected("test", 10, 100 / 9)
    assert wording(metrics, "test") == pytest.approx(WORDING)
    assert float(metrics["test/pointing"]) == pytest.approx(100 * 6 / 10)
    assert float(metrics["test/pointing (images shuffled)"]) == pytest.approx(100 * 2 / 10)


def test_every_validation_begins_afresh(tmp_path):
    """The validation before training, of a part of the images, is in none of them; the test is of
    its own.
    """
    found, images = pointer(tmp_path)
    search = found.search

    def change(epoch):
        found.model.sharpness = (2.0, 0.0)[epoch]
        if epoch == 1:
            found.search = partial(search, max_length=2)

    first, _ = noted(lambda run, _: change(run.current_epoch), "on_train_epoch_start")
    last, seen = noted(lambda run, _: dict(run.callback_metrics), "on_train_epoch_end")
    callbacks = [first, LogAttentionStatistics(), LogWording(), last]
    run = trainer(precision="32-true", max_epochs=2, num_sanity_val_steps=1, callbacks=callbacks)
    run.fit(found, images)
    assert list(map(attention, seen)) == [expected("val", 2, 100 / 9), expected("val", 0, 100)]
    cut = WORDING | {"length": 2, "ended": 0, "novel": 100, "vocabulary used": 2}
    assert [wording(each, "val") for each in seen] == [
        pytest.approx(each) for each in (WORDING, cut)
    ]
    found.model.sharpness = 1.0
    run.test(found, images, verbose=False)
    assert attention(run.callback_metrics) == expected("test", 1, 100 / 9)


def test_only_what_is_there_is_counted_and_logged(tmp_path):
    """Locations of partial images; a model without attention, features without a place, and data
    without boxes.
    """
    metrics = run_test(
        pointer(tmp_path, partial=True, boxes=False), LogAttentionStatistics(), Pointing()
    )
    assert float(metrics["test/attention coverage"]) == pytest.approx(100)
    entropy = math.log(2 * 3 * 4 * 5 * 6) / 5
    assert float(metrics["test/attention entropy"]) == pytest.approx(entropy)
    assert not any("pointing" in name for name in metrics)
    found, images = pointer(tmp_path)
    found.model.blind, found.backbone.located = True, False
    metrics = run_test((found, images), LogAttentionStatistics(), Pointing())
    assert "test/BLEU-1" in metrics
    assert not any("pointing" in name or "attention" in name for name in metrics)
