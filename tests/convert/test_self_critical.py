"""Systems of self-critical.pytorch against what its own code computed.

N images of up to L regions of D features.
"""

import argparse
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from convert.golden import PUBLISHED, captioner, expected, log_probabilities
from refusals import refuses
from support import called, captions_of
from torch.nn.utils.rnn import pad_sequence

from captioning.backbones.context import ContextSet
from captioning.convert.__main__ import main as convert_main
from captioning.convert.sources.self_critical import convert
from captioning.decoding import beam_search, greedy
from captioning.evaluate import main as evaluate_main
from captioning.tokens import BOS, PAD, UNK

SYSTEMS = ("newfc", "att2in2", "updown_bn", "aoa", "transformer")
systems = pytest.mark.parametrize("name", SYSTEMS)
LONGEST = 9


def files(name):
    folder = PUBLISHED / f"self_critical-{name}"
    return folder / "model.pth", folder / f"infos_{name}.pkl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("converted")


def loaded_of(name, folder):
    return captioner(convert(*files(name)), folder / name)


def arrays(name, images, kind):
    """`[K, D]` of each image, or `[D]` of `fc`; None where the system does not read them."""
    path = PUBLISHED / f"self_critical-{name}" / kind
    if not path.exists():
        return None
    found = (np.load(file) for image in images for file in path.glob(f"{image}.*"))
    return [torch.from_numpy(each["feat"] if kind == "att" else each) for each in found]


def context_of(name, images):
    regions, whole = (arrays(name, images, kind) for kind in ("att", "fc"))
    if regions is None:
        return ContextSet(torch.stack(whole)[:, None], (1, 1))
    vectors = pad_sequence(regions, batch_first=True)
    lengths = torch.tensor([len(each) for each in regions])
    mask = torch.arange(vectors.shape[1]) < lengths[:, None]
    return ContextSet(
        vectors, (1, vectors.shape[1]), mask, None if whole is None else torch.stack(whole)
    )


@systems
def test_log_probabilities(name, folder):
    """Of `aoa` they reach -196, and single precision leaves 2e-4 of theirs open."""
    golden = expected(f"self_critical-{name}")
    loaded = loaded_of(name, folder)
    found = log_probabilities(loaded, context_of(name, golden["images"]), golden["given"])
    rtol = 2e-6 if name == "aoa" else 0
    torch.testing.assert_close(found, torch.tensor(golden["log_probs"]), atol=1e-4, rtol=rtol)


@systems
def test_captions(name, folder):
    """Greedy, and by beams; their search becomes narrower where a caption ends, which changes none
    of these.
    """
    golden = expected(f"self_critical-{name}")
    loaded = loaded_of(name, folder)
    model, context = loaded.first.model, context_of(name, golden["images"])
    assert loaded.config["decoding"]["max_length"] == LONGEST

    def texts(captions):
        return [loaded.vocabulary.decode(caption.tokens) for caption in captions]

    assert texts(greedy(model, context, LONGEST)) == golden["greedy"]
    for width, beam in golden["beam"].items():
        captions = beam_search(model, context, int(width), LONGEST, length_penalty=0.0)
        assert texts(captions) == [each["caption"] for each in beam]
        scores = [caption.score for caption in captions]
        assert scores == pytest.approx([each["log_prob"] for each in beam], abs=1e-4, rel=2e-5)


@systems
def test_tokens_that_it_lacks_have_no_probability(name, folder):
    loaded = loaded_of(name, folder)
    context = context_of(name, expected(f"self_critical-{name}")["images"])
    tokens = torch.full((len(context.vectors), 1, 1), BOS)
    with torch.no_grad():
        logits = loaded.first.model.readout(loaded.first.model(context, tokens).hidden)
    probabilities = logits.double().softmax(-1)
    assert not probabilities.float()[..., [PAD, BOS, UNK]].any()


def rewritten(folder, name, change_options=(), change_weights=None, change_words=None):
    """The files of `name` with other options, weights or words."""
    weights, vocabulary = files(name)
    infos = pickle.loads(vocabulary.read_bytes(), encoding="latin1")
    infos["opt"] = argparse.Namespace(**vars(infos["opt"]) | dict(change_options))
    if change_words:
        infos["vocab"] = change_words(infos["vocab"])
    state = torch.load(weights, weights_only=True)
    if change_weights:
        change_weights(state)
    paths = folder / "model-best.pth", folder / "infos_x-best.pkl"
    torch.save(state, paths[0], _use_new_zipfile_serialization=False)
    paths[1].write_bytes(pickle.dumps(infos, protocol=2))
    return paths


def test_files_of_2019_and_their_names_of_options(tmp_path):
    """`topdown`, no longest length but `seq_length`, and the form of files before zip archives."""
    options = {"caption_model": "topdown", "max_length": 0, "seq_length": 7}
    converted = convert(*rewritten(tmp_path, "updown_bn", options))
    golden = convert(*files("updown_bn"))
    assert converted.words == golden.words
    assert "decoding.max_length=7" in converted.settings
    for name, tensor in golden.state.items():
        assert torch.equal(converted.state[name], tensor)


def test_sinusoids_are_left_out(tmp_path):
    """A large buffer, which is not in the file here."""
    position = {"model.tgt_embed.1.pe": torch.zeros(1, 5000, 16)}
    paths = rewritten(tmp_path, "transformer", change_weights=lambda state: state.update(position))
    assert convert(*paths).state.keys() == convert(*files("transformer")).state.keys()


def test_its_unknown_word_is_ours(tmp_path):
    paths = rewritten(tmp_path, "newfc", change_words=lambda words: words | {"30": "UNK"})
    converted, golden = convert(*paths), convert(*files("newfc"))
    assert converted.words == golden.words[:-1]
    for name in ("model.embed.weight", "model.head.output.weight", "model.head.output.bias"):
        assert torch.equal(converted.state[name][UNK], golden.state[name][-1])


def embed_twice(state):
    """Batch normalisation after the embedding, too, as with `use_bn=2`."""
    for name in ("weight", "bias", "running_mean", "running_var"):
        state[f"att_embed.4.{name}"] = torch.rand(16) + 0.5
    state["att_embed.4.num_batches_tracked"] = torch.tensor(1)


def test_two_batch_normalisations(tmp_path):
    paths = rewritten(tmp_path, "updown_bn", {"use_bn": 2}, embed_twice)
    loaded = captioner(convert(*paths), tmp_path / "captioner")
    state = torch.load(paths[0], weights_only=True)
    images = expected("self_critical-updown_bn")["images"]
    (regions, *_) = arrays("updown_bn", images, "att")

    def normalised(x, layer):
        own = {name: state[f"att_embed.{layer}.{name}"] for name in ("weight", "bias")}
        means, variances = (state[f"att_embed.{layer}.running_{name}"] for name in ("mean", "var"))
        return (x - means) / (variances + 1e-5).sqrt() * own["weight"] + own["bias"]

    x = normalised(regions, 0) @ state["att_embed.1.weight"].T + state["att_embed.1.bias"]
    found = loaded.first.model.encoder(ContextSet(regions[None], (1, len(regions)))).vectors[0]
    torch.testing.assert_close(found, normalised(x.relu(), 4), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "name, options",
    [
        *(
            ("updown_bn", {"caption_model": kind})
            for kind in ("stackatt", "denseatt", "adaattmo", 7)
        ),
        *(("updown_bn", {name: 1}) for name in ("norm_att_feat", "use_box", "bos_idx")),
        ("updown_bn", {"logit_layers": 2}),
        ("updown_bn", {"decide_length": "marker"}),
        ("aoa", {"decoder_type": "LSTM"}),
        ("aoa", {"multi_head_scale": 2}),
        ("aoa", {"use_multi_head": 0}),
        ("aoa", {"out_res": 1}),
        ("aoa", {"num_heads": "4 model.dropout=0"}),
        ("transformer", {"num_att_heads": [4]}),
        ("transformer", {"num_att_heads": 3}),
    ],
)
def test_options_that_cannot_be_represented_are_refused(name, options, tmp_path):
    ((key, _),) = options.items()
    named = {"num_heads": "writes it", "num_att_heads": "writes it|heads"}.get(
        key, f"{key}=|writes"
    )
    with refuses(named):
        captioner(convert(*rewritten(tmp_path, name, options)), tmp_path / "captioner")


@pytest.mark.parametrize(
    "name, change, named",
    [
        ("updown_bn", lambda s: s.pop("core.lang_lstm.bias_hh"), r"cell\.second\.word\.bias"),
        ("updown_bn", lambda s: s.pop("att_embed.0.weight"), r"batch_norms\.0\.weight"),
        ("updown_bn", lambda s: s.update({"len_fc.weight": torch.zeros(1)}), r"len_fc\.weight"),
        ("updown_bn", lambda s: s.update({"fc_embed.0.weight": torch.zeros(16, 7)}), r"inject"),
        ("att2in2", lambda s: s.pop("core.a2c.bias"), r"core\.a2c\.bias"),
        ("att2in2", lambda s: s.pop("core.h2h.bias"), "writes it"),
        ("newfc", lambda s: s.update({"logit.bias": torch.zeros(7)}), "the 7 rows"),
        (
            "transformer",
            lambda s: s.pop("model.decoder.layers.1.src_attn.linears.2.bias"),
            r"mismatch for decoder\.1\.inter_attention",
        ),
        ("aoa", lambda s: s.pop("core.attention.norm.b_2"), r"attention\.score\.norm\.bias"),
    ],
)
def test_other_weights_are_refused_by_name(name, change, named, tmp_path):
    paths = rewritten(tmp_path, name, change_weights=change)
    with refuses(named):
        captioner(convert(*paths), tmp_path / "captioner")


def test_infos_without_what_is_needed_are_refused(tmp_path):
    weights, _ = files("newfc")
    for infos in ({}, {"opt": {}, "vocab": {}}, {"opt": argparse.Namespace(), "vocab": {}}, []):
        path = tmp_path / "infos.pkl"
        path.write_bytes(pickle.dumps(infos, protocol=2))
        with refuses(r"infos\.pkl is not as"):
            convert(weights, path)


def test_from_its_files_to_captions_of_its_features(tmp_path, monkeypatch):
    """Images are those of COCO by name, regions and whole images in two folders."""
    monkeypatch.chdir(tmp_path)
    golden = expected("self_critical-updown_bn")
    weights, vocabulary = files("updown_bn")
    called(
        convert_main,
        "source=self_critical",
        f"weights={weights}",
        f"vocabulary={vocabulary}",
        "output=updown",
    )
    images = [
        {
            "filename": f"COCO_val2014_{image:012}.jpg",
            "sentences": [{"raw": "a dog", "tokens": ["a", "dog"]}],
            "split": "test",
        }
        for image in golden["images"]
    ]
    Path("photographs").mkdir()
    Path("coco.json").write_text(json.dumps({"images": images}))
    called(
        evaluate_main,
        "checkpoint=updown/checkpoints/best.ckpt",
        "data=karpathy",
        "data.root=photographs",
        "data.reader.annotations=coco.json",
        f"features={weights.parent / 'att'}",
        f"whole_features={weights.parent / 'fc'}",
        "metrics=[BLEU]",
    )
    captions = [line["caption"] for line in captions_of(Path("runs/evaluate"))]
    assert captions == [each["caption"] for each in golden["beam"]["5"]]
