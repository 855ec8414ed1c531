"""Checkpoints of the tutorial: photographs in, captions out, as its own code has them."""

import pytest
import torch
from convert.golden import PUBLISHED, captioner, expected, log_probabilities

from captioning.convert.sources.sgrvinod import convert

FILES = PUBLISHED / "sgrvinod"
EXPECTED = expected("sgrvinod")
IMAGES = [FILES / "images" / name for name in EXPECTED["images"]]


@pytest.fixture(scope="module")
def converted():
    return convert(next(FILES.glob("*.tar")), next(FILES.glob("WORDMAP*")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("converted") / "captioner"


def test_log_probabilities_of_photographs(converted, folder):
    loaded = captioner(converted, folder)
    pixels = torch.stack([loaded.preprocess(image)[0] for image in IMAGES])
    with torch.no_grad():
        context = loaded.first.backbone.context_of(pixels)
    sums = context.vectors.flatten(1).sum(1)
    torch.testing.assert_close(sums, torch.tensor(EXPECTED["features_sum"]), atol=2e-3, rtol=0)
    found = log_probabilities(loaded, context, EXPECTED["given"])
    torch.testing.assert_close(found, torch.tensor(EXPECTED["log_probs"]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("width", [1, 3, 5])
def test_captions_by_beam_search(converted, folder, width):
    """Its search has no norm for length either with `length_penalty=0`."""
    loaded = captioner(converted, folder, width=width, length_penalty=0.0)
    captions = [prediction.caption for prediction in loaded.caption(IMAGES)]
    assert captions == EXPECTED["beam"][str(width)]
