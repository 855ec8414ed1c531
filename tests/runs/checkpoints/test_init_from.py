"""Runs that begin from another run's checkpoint."""

import pytest
import torch
from json_files import read_json
from omegaconf import OmegaConf
from refusals import refuses
from support import QUIET, checked, composed, miniature

from captioning.config.arguments import given_keys
from captioning.config.registry import CONF
from captioning.data.vocabulary import Vocabulary
from captioning.run import main
from captioning.runs.checkpoints.checkpoint import load_checkpoint
from captioning.runs.checkpoints.initial import IGNORED_DIFFERENCES, PretrainedWeights
from captioning.runs.evaluation.data_set import check_vocabulary
from captioning.runs.settings import each_setting

pytestmark = QUIET

QUICK = ["callbacks.attention=null", "callbacks.pointing=null", "metrics.val=[CIDEr]"]


def small(*overrides):
    return miniature(composed(*QUICK, *overrides))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def first(home):
    """The checkpoint of a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        assert main.__wrapped__(small()) is not None
    return home / "runs" / "shapes-spatial_transformer_small-seed1" / "checkpoints" / "best.ckpt"


def networks(path):
    return load_checkpoint(path).networks


@pytest.mark.parametrize("group", IGNORED_DIFFERENCES)
def test_settings_that_may_change_after_training_exist_and_have_all_that_only_training_reads(group):
    found = set()
    for file in (CONF / group).glob("*.yaml"):
        settings = OmegaConf.to_container(composed(f"{group}={file.stem}")[group])
        found |= {key.rpartition(".")[2] for key, _ in each_setting(settings)}
    assert set(IGNORED_DIFFERENCES[group]) <= found
    of_training = {key for key in found if "dropout" in key or key in ("trainable", "freeze")}
    assert of_training <= set(IGNORED_DIFFERENCES[group])


def test_a_run_begins_with_weights_words_and_backbone_and_its_own_data(first, home, monkeypatch):
    """Of another seed, data set and objective, with the backbone frozen, which changes neither its
    weights nor scale; at a rate of learning that moves nothing.
    """
    monkeypatch.chdir(home)
    other = ["seed=3", "name=second", "data.reader.seed=8", "objective=self_critical"]
    other += ["data.vocabulary=checkpoint", "backbone.trainable=false", "model.dropout=0.3"]
    config = small(*other, "optimizer.lr=1e-12", f"init_from={first}")
    config.test = True
    config.metrics.test = ["BLEU"]
    main.__wrapped__(config)
    folder = home / "runs" / "second-spatial_transformer_small-seed3"
    begun, before = networks(folder / "checkpoints" / "best.ckpt"), networks(first)
    assert begun.keys() == before.keys()
    for name, tensor in before.items():
        torch.testing.assert_close(begun[name], tensor, rtol=0, atol=1e-9, msg=name)
    assert (
        load_checkpoint(folder / "checkpoints" / "best.ckpt").words == load_checkpoint(first).words
    )
    assert "init_from" in read_json(folder / "run.json")["digests"]
    origin = read_json(folder / "scores.json")["provenance"]
    assert origin["self_critical"] == "STANDARD_wInit+Cider-D[n4,s6.0]+average[nspi5]+1.0.0"
    assert len(origin["document_frequencies"]) == 64

    # an evaluation asks for no other words either
    data = load_checkpoint(folder / "checkpoints" / "best.ckpt").config["data"]
    assert data["vocabulary"] == "checkpoint"
    check_vocabulary([], data["vocabulary"], Vocabulary(["a"]))
    for other in (["a"], None, 5):
        with refuses(r"data\.vocabulary="):
            check_vocabulary([], other, Vocabulary(["a"]))


@pytest.mark.parametrize(
    "change, named",
    [
        ("model.decoder_layers=3", "model.decoder_layers=3 (it has 4)"),
        ("model=sat_soft", "Recurrent (it has captioning.models.Transformer)"),
        ("model.scale=sqrt_d", "model.scale=sqrt_d (it has sqrt_len_d)"),
    ],
)
def test_another_architecture_is_named(first, change, named, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with refuses("has another architecture: ") as error:
        main.__wrapped__(small(change, f"init_from={first}"))
    assert named in str(error.value)
    assert list(tmp_path.iterdir()) == []


OPEN = ("data=csv", "data.root=photographs")  # which chooses a backbone of its own


def completed(first, *given, **stored):
    """A run's settings, completed by a checkpoint of `sat_hard` on patches with the settings
    `stored`.
    """
    parts = ["model=sat_hard", "backbone=patches", "backbone.size=32"]
    saved = composed(*parts, "decoding.filters.forbidden=[word]")
    resolved = OmegaConf.create(OmegaConf.to_container(saved, resolve=True))
    for key, value in stored.items():
        OmegaConf.update(resolved, key.replace("__", "."), value)
    initial = PretrainedWeights(first)
    initial._saved.config.update(OmegaConf.to_container(resolved))
    config = composed(*OPEN, *given)
    initial.complete(config, given_keys())
    return config


FORBIDDEN = "decoding.filters.forbidden"


@pytest.mark.parametrize(
    "given, expected",
    [
        ([], {"backbone.size": 32, "model.dropout": 0.1, "choices.model": "sat_hard_small"}),
        (["data.max_words=9"], {"objective.max_words": 9, FORBIDDEN: ["word"]}),
        (["backbone.size=64"], {"backbone.size": 64, "backbone.grid": 14}),
        (["model=sat_soft"], {"model.attention.mode": "expected", "backbone.size": 32}),
        (["data.vocabulary.min_count=2"], {"data.vocabulary.min_count": 2, FORBIDDEN: []}),
        ([f"{FORBIDDEN}=[]", "objective=cross_entropy"], {FORBIDDEN: []}),
        (["experiment=flickr8k"], {"backbone.name": "squeezenet1_1", "model.dropout": 0.2}),
    ],
)
def test_what_the_command_leaves_open_is_as_in_the_checkpoint(first, given, expected):
    config = completed(first, *given)
    assert {key: OmegaConf.select(config, key) for key in expected} == expected


def test_the_settings_of_a_second_stage_are_not_taken(first):
    stored = OmegaConf.to_container(composed("objective=self_critical").objective)
    assert completed(first, objective=stored).objective == composed(*OPEN).objective


@pytest.mark.parametrize(
    "stored, message",
    [
        ({"model__head___target_": "os.system"}, "has os.system.*set model=NAME"),
        ({"backbone___target_": "captioning.models.Recurrent"}, "may not stand there"),
        ({"model__title": "${oc.env:HOME}"}, "no plain values"),
        ({"decoding__filters__forbidden": ["${oc.env:HOME}"]}, "no plain values"),
        ({"data__tokens": "os.system"}, "data.tokens names os.system"),
    ],
)
def test_a_strangers_checkpoint_is_data(first, stored, message, elsewhere):
    (elsewhere / "photographs").mkdir()
    (elsewhere / "photographs" / "captions.txt").write_text("image,caption\na.jpg,a dog\n")
    with refuses(message):
        checked(completed(first, f"init_from={first}", **stored))


def test_a_strangers_checkpoint_names_no_other_folder(first):
    assert completed(first, choices__model="../../elsewhere").choices.model == "Recurrent"


def test_another_backbone_of_the_same_shapes_is_named(first):
    """Such as one whose strides lie elsewhere; how it is trained, filled or fed may differ."""
    initial = PretrainedWeights(first)
    saved = load_checkpoint(first).config
    own, model = saved["backbone"], saved["model"]
    others = {"trainable": "layer4", "size": 2 * own["size"], "resize": "pad", "weights": "FILE"}
    initial.check_architecture(own | others, model)
    initial._saved.config["backbone"]["stride_in_1x1"] = None
    initial.check_architecture(own | {"stride_in_1x1": False}, model)
    with refuses(r"backbone.stride_in_1x1=true \(it has null\)"):
        initial.check_architecture(own | {"stride_in_1x1": True}, model)


def test_another_vocabulary_and_other_weights_are_refused(first):
    words = load_checkpoint(first).words
    initial = PretrainedWeights(first)
    initial.check_vocabulary(Vocabulary(words))
    for others in (words[::-1], words[1:], [*words, "zebra"]):
        with refuses(r"another vocabulary .*vocabulary=checkpoint"):
            initial.check_vocabulary(Vocabulary(others))
    with refuses(r"init_from=.*Missing key"):
        initial.fill("backbone", torch.nn.Sequential(torch.nn.Linear(2, 3)))
