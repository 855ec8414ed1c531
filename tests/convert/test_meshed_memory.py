"""The Meshed-Memory Transformer against what the code of its authors computed."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from convert.golden import PUBLISHED, captioner, expected, log_probabilities
from models.tensors import close
from refusals import refuses

from captioning.backbones.context import ContextSet
from captioning.backbones.precomputed import Precomputed
from captioning.convert.sources.meshed_memory import convert
from captioning.data.example import Example
from captioning.decoding import beam_search
from captioning.features.build import FeatureStore

h5py = pytest.importorskip("h5py")
FOLDER = PUBLISHED / "meshed_memory"
WEIGHTS, VOCABULARY = FOLDER / "meshed_memory_transformer.pth", FOLDER / "vocab.pkl"
GOLDEN = expected("meshed_memory")
HEADS, REGIONS = GOLDEN["heads"], 12


@pytest.fixture(scope="module")
def converted():
    return convert(WEIGHTS, VOCABULARY, HEADS)


@pytest.fixture(scope="module")
def loaded(converted, tmp_path_factory):
    return captioner(converted, tmp_path_factory.mktemp("converted"))


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """The detections in single precision, padded with zeros."""
    vectors = torch.zeros(len(GOLDEN["images"]), REGIONS, 24)
    with h5py.File(FOLDER / "coco_detections.hdf5") as file:
        for row, image in zip(vectors, GOLDEN["images"], strict=True):
            detections = torch.from_numpy(file[f"{image}_features"][()])
            row[: len(detections)] = detections
    return ContextSet(vectors, (1, REGIONS))


def test_probabilities_of_given_captions(loaded, context):
    found = log_probabilities(loaded, context, GOLDEN["given"])
    close(found, torch.tensor(GOLDEN["log_probs"]), 1e-4)
    masked = replace(context, mask=context.vectors.any(-1))
    others = log_probabilities(loaded, masked, GOLDEN["given"])
    assert (others - found).abs().max() > 1  # the padding is attended to


@pytest.mark.parametrize("width", [1, 5])
def test_captions_of_the_nearest_search(width, loaded, context):
    captions = beam_search(loaded.first.model, context, width, max_length=20, length_penalty=0)
    for caption, golden in zip(captions, GOLDEN["beam"][str(width)], strict=True):
        assert loaded.vocabulary.decode(caption.tokens) == golden["caption"]
        assert caption.score == pytest.approx(golden["log_prob"], abs=1e-4)


def test_the_file_of_detections_is_read_as_the_settings_tell(converted, context, tmp_path):
    settings = dict(setting.split("=") for setting in converted.settings)
    backbone = Precomputed(
        str(FOLDER / settings["backbone.path"]),
        int(settings["backbone.dim"]),
        REGIONS,
        sample=settings["backbone.sample"],
        padding=settings["backbone.padding"],
    )
    examples = [Example(image, Path(f"{image}.jpg"), ()) for image in GOLDEN["images"]]
    read = backbone.context(
        backbone.open_inputs(examples, FeatureStore(tmp_path), "test").rows(range(6))
    )
    assert read.mask is None
    assert torch.equal(read.vectors, context.vectors.half().float())


@pytest.mark.parametrize(
    "change, named",
    [
        (lambda state: state.update({"encoder.pos": torch.zeros(1)}), r"Unexpected.*encoder\.pos"),
        (lambda state: state.pop("encoder.fc.bias"), r"Missing.*encoder\.project\.bias"),
        (lambda state: state.pop("encoder.layers.1.mhatt.attention.m_v"), r"1\..*memory\.value"),
        (lambda state: state.pop("decoder.layers.2.fc_alpha3.weight"), r"2\..*gates\.2\.weight"),
        (lambda state: state.update({"decoder.fc.weight": torch.zeros(9, 16)}), "the 9 rows"),
    ],
)
def test_other_weights_are_refused_by_name(change, named, tmp_path):
    saved = torch.load(WEIGHTS, weights_only=True)
    change(saved["state_dict"])
    torch.save(saved, path := tmp_path / "other.pth")
    with refuses(named):
        captioner(convert(path, VOCABULARY, HEADS), tmp_path / "converted")
