"""Checkpoints of the tutorial: photographs in, captions out, as its own code has them."""

import json

import models
import pytest
import torch
import torchvision
from convert.golden import PUBLISHED, captioner, expected, log_probabilities
from torch import nn

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


class Encoder(nn.Module):
    """With the names of theirs: a whole network without its last two children."""

    def __init__(self):
        super().__init__()
        self.enc_image_size = 14
        self.resnet = nn.Sequential(*list(torchvision.models.resnet101().children())[:-2])
        self.adaptive_pool = nn.AdaptiveAvgPool2d((14, 14))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder_att, self.decoder_att = nn.Linear(2048, 6), nn.Linear(8, 6)
        self.full_att = nn.Linear(6, 1)


class DecoderWithAttention(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.attention, self.embedding = Attention(), nn.Embedding(words, 5)
        self.decode_step = nn.LSTMCell(5 + 2048, 8, bias=True)
        self.init_h, self.init_c = nn.Linear(2048, 8), nn.Linear(2048, 8)
        self.f_beta, self.fc = nn.Linear(8, 2048), nn.Linear(8, words)


@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code")
def test_a_whole_network_of_the_old_format(tmp_path, monkeypatch):
    """ResNet-101, its optimiser and no counters of batches, as PyTorch 0.4 wrote them."""
    vocabulary = next(FILES.glob("WORDMAP*"))
    torch.manual_seed(0)
    words = len(json.loads(vocabulary.read_text()))
    encoder, decoder = Encoder().eval(), DecoderWithAttention(words)
    decoder.fc(torch.zeros(8)).sum().backward()
    optimiser = torch.optim.Adam(decoder.fc.parameters())
    optimiser.step()
    for module in encoder.modules():
        module._buffers.pop("num_batches_tracked", None)
    for kind in (Encoder, Attention, DecoderWithAttention):
        monkeypatch.setattr(models, kind.__name__, kind, raising=False)
        monkeypatch.setattr(kind, "__module__", "models")
    saved = {"encoder": encoder, "decoder": decoder, "decoder_optimizer": optimiser}
    path = tmp_path / "BEST_checkpoint.pth.tar"
    torch.save(saved, path, _use_new_zipfile_serialization=False)
    loaded = captioner(convert(path, vocabulary), tmp_path / "captioner")
    pixels = loaded.preprocess(IMAGES[0])[0][None]
    with torch.no_grad():
        found = loaded.first.backbone.context_of(pixels).vectors
        mean, std = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[..., None, None]
        maps = encoder.adaptive_pool(encoder.resnet((pixels / 255 - mean) / std))
    close = 1e-5 * maps.max().item()  # random layers let numbers grow
    torch.testing.assert_close(found, maps.flatten(2).mT, atol=close, rtol=0)
    (prediction,) = loaded.caption([IMAGES[0]])
    assert prediction.attention is None or prediction.attention.shape[1:] == (14, 14)
