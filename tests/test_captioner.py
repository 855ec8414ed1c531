"""A checkpoint alone makes the captioner that the run has tested."""

import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError
from refusals import refuses

import captioning
from captioning.features.build import FeatureStore
from captioning.runs.checkpoints import networks
from captioning.runs.checkpoints.checkpoint import with_digest

GREEDY = {"_target_": "captioning.decoding.greedy"}


@pytest.fixture(scope="module")
def captioner(shapes_run):
    return captioning.load(shapes_run.checkpoint, device="cpu")


def changed(path, folder, change):
    """A copy of a checkpoint with `change` made to it by somebody who knows of the digest."""
    saved = torch.load(path, weights_only=True)
    del saved["digest"]
    change(saved)
    torch.save(with_digest(saved), folder / "changed.ckpt")
    return folder / "changed.ckpt"


def test_captions_are_those_of_the_run_in_batches_of_any_size(shapes_run, captioner):
    """Of one or many, files or images."""
    predictions = captioner.caption(shapes_run.photographs)
    assert [prediction.caption for prediction in predictions] == shapes_run.captions
    assert len(set(shapes_run.captions)) > 1  # or the order of the images would not show
    for prediction in predictions:
        assert " ".join(prediction.words) == prediction.caption
        assert prediction.score < 0
        assert prediction.attention.shape == (len(prediction.words), 4, 4)
        torch.testing.assert_close(
            prediction.attention.sum(dim=(1, 2)), torch.ones(len(prediction.words))
        )

    first, second, *_ = shapes_run.photographs
    (alone,) = captioner.caption(first)
    assert alone.caption == predictions[0].caption
    assert alone.score == pytest.approx(predictions[0].score, abs=1e-4)
    with Image.open(second) as image:
        assert captioner.caption(image)[0].caption == predictions[1].caption
        mixed = captioner.caption((item for item in (str(first), image, second)), batch_size=2)
    assert [prediction.caption for prediction in mixed] == [
        predictions[i].caption for i in (0, 1, 1)
    ]
    assert captioner.caption([]) == []
    with Image.open(second) as image:
        array = np.asarray(image.convert("RGB"))
    for arrays in (array, [array], array[None]):  # one, several, and a batch
        assert [each.caption for each in captioner.caption(arrays)] == [predictions[1].caption]
    assert len(captioner.caption(array[..., 0])) == 1  # grey


def test_a_captioner_is_frozen_takes_no_random_numbers_and_says_what_it_is(shapes_run):
    before = torch.random.get_rng_state()
    captioner = captioning.load(shapes_run.checkpoint, device="cpu")
    assert torch.equal(torch.random.get_rng_state(), before)
    for network in (captioner.networks[0].backbone, captioner.networks[0].model):
        assert not network.training
        assert not any(parameter.requires_grad for parameter in network.parameters())
    system = r"spatial_transformer\w* on SmallCNN, val/[\w-]+ [\d.]+, [\d,]+ parameters"
    known = len(captioner.vocabulary.words)
    assert re.fullmatch(rf"TrainedCaptioner\({system}; {known} words; cpu\)", repr(captioner))


def test_decoding_settings_replace_those_of_the_run(shapes_run, captioner, tmp_path):
    """Words of filters by their text; a search that takes all of the machine is the user's to ask
    for.
    """

    def shorten(saved):
        saved["captioning"]["config"]["decoding"]["max_length"] = 3

    def decoded(**settings):
        other = captioning.load(shapes_run.checkpoint, "cpu", decoding=settings)
        return [prediction.words for prediction in other.caption(shapes_run.photographs)]

    assert captioner.config["decoding"]["width"] == 3
    greedy = decoded(**GREEDY, max_length=15)
    assert decoded(width=1, length_penalty=0, early_stopping=True) == greedy
    assert max(map(len, greedy)) > 2
    shorter = changed(shapes_run.checkpoint, tmp_path, shorten)
    assert {
        len(each.words)
        for each in captioning.load(shorter, "cpu", GREEDY).caption(shapes_run.photographs)
    } == {3}
    assert {len(words) for words in decoded(max_length=2)} == {2}
    said = {word for caption in shapes_run.captions for word in caption.split()}
    some = sorted(said - {"blue", "the"})[:3]
    begun = decoded(
        filters={"prefix": ["blue", "the"], "forbidden": [*some, "zebra"], "no_word_twice": True}
    )
    assert all(words[:2] == ["blue", "the"] and not {*words} & {*some} for words in begun)
    captioning.load(shapes_run.checkpoint, decoding={"width": 40})


QUANTILES = [-2.0 + i / 50 for i in range(101)]


def test_confidence_is_the_share_of_lower_scores(shapes_run, tmp_path):
    """Of captions of the same search; ensembles and checkpoints without quantiles know none. The
    quantiles are known scores, of which a hundredth is below each next one.
    """
    calibrated = changed(
        shapes_run.checkpoint,
        tmp_path,
        lambda saved: saved["captioning"].update(quantiles=QUANTILES),
    )
    for best in captioning.load(calibrated, "cpu", {"n_best": 3}).caption(shapes_run.photographs):
        ranked = [best, *best.alternatives]
        scores = [said.score for said in ranked]
        assert len({said.caption for said in ranked}) == 3
        assert scores == sorted(scores, reverse=True)
        for said in ranked:
            assert said.confidence == pytest.approx(min(max((said.score + 2) / 2, 0), 1), abs=0.02)
            assert len(said.attention) == len(said.words)
    beam = {"_target_": "captioning.decoding.beam_search", "width": 3}
    usual = {"width": 3, "length_penalty": 1.0, "filters": {"prefix": [], "no_bad_ending": False}}
    others = [{"width": 2}, {"max_length": 5}, GREEDY, {"filters": {"no_word_twice": True}}]
    # the other settings of `beam` are not those of the run
    others += [{"ensemble": [calibrated] * 2}, {"early_stopping": True}, beam]
    for settings in (usual, {"n_best": 3}, *others):
        known = () if settings in others else tuple(QUANTILES)
        assert tuple(captioning.load(calibrated, "cpu", settings).quantiles) == known, settings
    plain = changed(calibrated, tmp_path, lambda saved: saved["captioning"].pop("quantiles"))
    assert captioning.load(plain, "cpu").caption(shapes_run.photographs[0])[0].confidence is None


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"device": "cuda:99"}, "device=cuda:99 cannot be used"),
        ({"decoding": {"widht": 5}}, r"decoding\.widht\. Did you mean width\?"),
        ({"decoding": {"max_length": 16}}, r"max_length=16 is longer .* model\.max_tokens=15"),
        ({"decoding": {**GREEDY, "width": 3}}, r"no setting decoding\.width"),
        ({"decoding": {"filters": {"prefix": ["purpel"]}}}, r"Did you mean purple\?"),
        ({"decoding": {"filters": {"_target_": "os.system", "command": "true"}}}, r"os\.system"),
        ({"decoding": {"ensemble": "one.ckpt"}}, r"decoding\.ensemble"),
        ({"decoding": {"ensemble": ["transformers:blip"]}}, r"decoding\.ensemble.*transformers:"),
        ({"decoding": {"ensemble": ["one.ckpt"]}}, r"is not in decoding\.ensemble=\[one\.ckpt\]"),
    ],
)
def test_what_cannot_be(shapes_run, settings, message):
    with refuses(message):
        captioning.load(shapes_run.checkpoint, **{"device": "cpu", **settings})


def test_what_cannot_be_captioned(tmp_path, captioner):
    for given, message in (
        (torch.zeros(2, 3, 4, 4), "cannot caption a Tensor"),
        ([None], "cannot caption a NoneType"),
        (np.zeros((4, 4, 3)), "cannot caption a ndarray.*uint8"),
        (tmp_path / "absent.png", "absent"),
    ):
        with refuses(message):
            captioner.caption(given)
    with pytest.raises(ValidationError, match="batch_size"):
        captioner.caption([], batch_size=0)


def test_an_ensemble(shapes_run, cached_run, tmp_path):
    def louder(saved):
        saved["state_dict"]["model.output.bias"][-1] += 100

    other = changed(shapes_run.checkpoint, tmp_path, louder)  # which always says the last word
    said = captioning.load(other, "cpu").vocabulary.words[-1]
    assert set(captioning.load(other, "cpu").caption(shapes_run.photographs)[0].words) == {said}
    both = captioning.load(
        None, "cpu", decoding={"ensemble": [shapes_run.checkpoint, other], "max_length": 1}
    )
    (prediction, *_) = both.caption(shapes_run.photographs)
    assert prediction.words == [said]
    assert (
        2**-1.01 < torch.tensor(prediction.score).exp() < 2**-0.9
    )  # half of one, and little of the other
    assert both.config["decoding"]["ensemble"] == [str(shapes_run.checkpoint), str(other)]
    with refuses("another vocabulary"):
        captioning.load(
            None, "cpu", decoding={"ensemble": [shapes_run.checkpoint, cached_run.checkpoint]}
        )


def test_frozen_backbone_without_its_weights_file(tmp_path, cached_run):
    """The run decoded cached features; what differs from photographs is their rounding to half
    precision.
    """
    captioner = captioning.load(cached_run.checkpoint, device="cpu")
    (network,) = captioner.networks
    assert network.backbone.digest == cached_run.digest
    assert network.backbone.scale != 1
    cache = FeatureStore(tmp_path).computed(network.backbone, cached_run.photographs, "test")
    rows = cache.rows([0])
    assert rows.dtype == torch.float16
    (caption,) = captioner.search(network.model, network.backbone.context(rows))
    assert [captioner.vocabulary.decode(caption.tokens)] == cached_run.captions
    (prediction,) = captioner.caption(cached_run.photographs)
    assert prediction.score == pytest.approx(caption.score, rel=1e-2)
    assert len(prediction.words) > 0


def test_checkpoints_of_a_gpu_load_on_a_cpu(tmp_path, shapes_run):
    """Without what only training needs. The pickle names the device of every tensor: written anew,
    as a GPU's run would have named it.
    """

    def auto(saved):
        config = saved["captioning"]["config"]
        config["trainer"]["accelerator"] = "auto"  # so that no setting is called as the device is
        config["objective"] = {"_target_": "captioning.nowhere.Loss"}
        saved["state_dict"]["objective.baseline"] = torch.zeros(1)
        for key in ("optimizer_states", "lr_schedulers", "callbacks", "loops"):
            del saved[key]

    path, source = tmp_path / "gpu.ckpt", changed(shapes_run.checkpoint, tmp_path, auto)
    cpu, gpu = (b"X" + len(name).to_bytes(4, "little") + name for name in (b"cpu", b"cuda:0"))
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for item in old.namelist():
            content = old.read(item)
            assert cpu in content or not item.endswith("data.pkl")
            new.writestr(item, content.replace(cpu, gpu) if item.endswith("data.pkl") else content)
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="CUDA"):
            torch.load(path, weights_only=True)
    said = captioning.load(path, "cpu").caption(shapes_run.photographs)
    assert [each.caption for each in said] == shapes_run.captions


def test_in_bfloat16_the_bundled_captioner_says_nearly_the_same(monkeypatch):
    """Where the CPU has no instructions for it, it would be slower, not different, and is
    refused.
    """
    monkeypatch.setattr(networks, "has_bfloat16", lambda device: True)
    photographs = sorted((Path(__file__).parents[1] / "experiments" / "photographs").glob("*.jpg"))
    single, lower = (
        captioning.load(device="cpu", bfloat16=there).caption(photographs)
        for there in (False, True)
    )
    same = [
        (ours, theirs)
        for ours, theirs in zip(single, lower, strict=True)
        if ours.caption == theirs.caption
    ]
    assert len(same) >= 10 < len(photographs)
    assert all(ours.score == pytest.approx(theirs.score, abs=0.1) for ours, theirs in same)
    assert any(ours.score != theirs.score for ours, theirs in same)
    monkeypatch.setattr(networks, "has_bfloat16", lambda device: False)
    with refuses("bfloat16=true is slower"):
        captioning.load(device="cpu", bfloat16=True)


def test_the_bundled_captioner_writes_no_word_of_ethnicity():
    captioner = captioning.load(device="cpu")
    unwanted = {"asian", "african", "american", "indian", "oriental"}
    assert unwanted <= {*captioner.vocabulary.words}
    ids = captioner.vocabulary.encode(sorted(unwanted))
    (allowed,) = captioner.search.keywords["filters"].allowed([[]], len(captioner.vocabulary), 9)
    assert not allowed[ids].any()
    assert (~allowed).sum() == 10
