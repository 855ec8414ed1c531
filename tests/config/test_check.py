"""Combinations of settings that cannot work."""

import contextlib
import functools
import math
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from lightning import Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.plugins import DoublePrecision
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from PIL import Image
from refusals import refuses
from support import QUIET, assembled, checked, composed, miniature, small_run

from captioning import run
from captioning.backbones.scratch import SmallCNN
from captioning.config.explain import explain
from captioning.config.schemas.run import RunSettings
from captioning.config.settings import check_settings
from captioning.data.shapes import ShapesReader
from captioning.errors import CaptioningError
from captioning.models import Transformer
from captioning.training import fit
from captioning.training.callbacks.resume import CheckpointFiles
from captioning.training.objectives import CrossEntropy

BY_LOSS = "callbacks.checkpoint.monitor=val/nll callbacks.checkpoint.mode=min"
REFUSALS = (CaptioningError, OmegaConfBaseException, MisconfigurationException)
pytestmark = [pytest.mark.usefixtures("tables"), *QUIET]


@pytest.fixture
def tables(elsewhere):
    """Of the readers chosen here, which are asked for before other settings are judged."""
    (elsewhere / "captions.txt").write_text("image,caption\na.jpg,a dog\n")
    (elsewhere / "annotations").mkdir()
    for part in ("train", "val"):
        (elsewhere / "annotations" / f"captions_{part}2014.json").write_text("{}")


def few(config):
    """The same with few images, where they are drawn."""
    if "max_objects" in (OmegaConf.select(config, "data.reader") or {}):
        config.data.reader.update(train=16, val=4, test=4)
        config.data.vocabulary = {**config.data.vocabulary, "min_count": 1}
    return config


WORKS = """
data.train_images=100000 name=2018 cache='${oc.env:HOME}/cache'
optimizer._target_=torch.optim.SGD +optimizer.momentum=0.9
optimizer=rmsprop optimizer._target_=torch.optim.Adagrad
trainer.limit_train_batches=0.5 +trainer.val_check_interval=0.25
+trainer.val_check_interval='00:15:00:00' trainer.max_steps=100
+callbacks.checkpoint.save_top_k=2 callbacks.early_stopping.patience=0
+trainer.overfit_batches=0.0 +trainer.fast_dev_run=false
~callbacks.pointing ~callbacks.attention ~callbacks.stopwatch
callbacks.results=null test=false
metrics.val=[] callbacks.checkpoint.monitor=val/nll callbacks.checkpoint.mode=min
schedule=plateau callbacks.early_stopping.patience=9 +trainer.min_epochs=5
trainer.max_epochs=1 trainer.check_val_every_n_epoch=2 test=false
trainer.max_epochs=-1 trainer.limit_train_batches=3 trainer.gradient_clip_val=1
+trainer.strategy=ddp trainer=cpu trainer.devices=2
model=sat_hard objective=cross_entropy decoding.filters.forbidden=[red,3]
"""


@pytest.mark.parametrize("overrides", WORKS.strip().splitlines())
def test_what_works_passes(overrides):
    checked(composed(*overrides.split()))


@pytest.mark.parametrize("search", ["beam", "greedy", "sample", "diverse_beam"])
def test_lengths_follow_the_captions_of_training(search):
    lengths = {"": (15, 15), "data.max_words=60": (61, 61)}
    lengths["data.max_words=60 decoding.max_length=20"] = (20, 61)
    for overrides, expected in lengths.items():
        config = composed(f"decoding={search}", *overrides.split())
        checked(config)
        assert (config.decoding.max_length, config.model.max_tokens) == expected


# what is set together, and what the refusal names
REFUSED_TOGETHER = {
    "data.max_words=15 model.max_tokens=15 decoding.max_length=15": "model.max_tokens=16",
    "objective=reinforce": "model=sat_hard",
    "model=sat_soft ~model/score": "objective.doubly_stochastic=0",
    "model=show_tell objective=doubly_stochastic": "model/score=mlp",
    "objective=self_critical objective.kl_weight=0.1": "init_from=CHECKPOINT",
    "model=language_model model.size=small model.freeze=true": "model.path=FOLDER",
    "decoding.max_length=16": "data.max_words",
    "data.language=zh callbacks.checkpoint.monitor=val/METEOR": "val/BLEU-1",
    "metrics.val=[BLEU]": "callbacks.checkpoint.monitor=val/CIDEr",
    "callbacks.early_stopping.monitor=val/CIDER": "val/ROUGE-L",
    "callbacks.checkpoint.monitor=val/nll": "callbacks.checkpoint.mode=max: set it to min",
    "callbacks.early_stopping.monitor=val/pointing": "one of val/BLEU-1",
    "metrics.val=[] callbacks.checkpoint.monitor=val/length": "one of val/nll",
    "metrics.val=[experiments.diversity.metric.Diversity] "
    "callbacks.checkpoint.monitor=val/mBLEU-4": "callbacks.checkpoint.mode=max: set it to min",
    f"decoding.beam_widths=[1,3] {BY_LOSS}": "decoding.beam_widths=null",
    "decoding.beam_widths=[1,3] test=false trainer.limit_val_batches=0": "beam_widths=null",
    "decoding=greedy +decoding.beam_widths=[1,3]": "decoding.width",
    "data.train_images=0": "data.train_images=0",
    "~callbacks.results": "test=false",
    "trainer.max_epochs=1 trainer.check_val_every_n_epoch=2": "test=false",
    "trainer.limit_val_batches=0": "test=false",
    "hydra/launcher=processes trainer=cpu trainer.devices=2": "trainer.devices=2",
    "backbone=squeezenet1_1 backbone.weights=no.pt": "backbone.weights=no.pt",
    "backbone.grid=5": "backbone.size=112",
    "backbone.size=100": "backbone.grid=7",
    "optimizer.backbone_lr=1e-5 backbone.trainable=false": "backbone.trainable=true",
    "schedule._target_=torch.optim.lr_scheduler.StepLR": "step_size",
    "+optimizer.foreach=true": "`fused` and `foreach`",
    "+trainer.overfit_batches=1": "debug=true trainer.limit_train_batches=1.0",
    "+trainer.fast_dev_run=true": "debug=true",
    "+callbacks.checkpoint.every_n_train_steps=5 +callbacks.checkpoint.every_n_epochs=5": "excl",
    "data=csv data.root=. data.reader.splits.test=[1,0]": "data.reader.splits.test",
    "data=karpathy data.root=.": "data.reader.annotations",
    "trainer.plugins=[{_target_:lightning.pytorch.plugins.TorchCheckpointIO}]": "CheckpointIO",
}


@pytest.mark.parametrize("overrides", REFUSED_TOGETHER)
def test_what_cannot_work_is_refused(overrides):
    with pytest.raises(REFUSALS) as refusal:
        assembled(few(composed(*overrides.split())))
    assert REFUSED_TOGETHER[overrides] in explain(refusal.value)


class Focus(CrossEntropy):
    """An objective of one's own, which has no settings."""

    def __init__(self):
        super().__init__()
        self.needs_attention = True


def test_what_an_own_objective_needs_is_told_without_settings_of_ours():
    target = f"objective._target_={__name__}.Focus"
    with pytest.raises(CaptioningError, match="model/score=mlp") as refusal:
        assembled(few(composed("model=show_tell", target)))
    assert "doubly_stochastic" not in str(refusal.value)


def test_features_have_no_places():
    images = (1_000_000 * split + image for split in range(3) for image in range(16))
    np.savez("features.npz", **{str(image): np.ones((2, 7), np.float16) for image in images})
    features = ["backbone=features", "backbone.path=features.npz", "backbone.dim=7"]
    model = ["model=geometry", "model.size=small", "backbone.regions=2", "data.views=1"]
    with refuses(r"model\.encoder\.relative=geometry .*=features"):
        assembled(few(composed(*features, *model)))


# by each kind of judgement: our table, the type of a parameter, the part that is built; rooms have
# tests of bounds
REFUSED = """
seed=-1 seed=1.5 resume=3 test=1 name=null runs= cache=5 metrics=null metrics.test=[]
metrics.test=[1]
metrics.timeout=inf metrics.timeout=nan data.batch_size=0 data.eval_batch_size=100000000
data.num_workers=-1
data.views=true data.vocabulary=null data.vocabulary.min_count=0 data.reader=null
data.reader.max_objects=5
data.language=german data.tokens=letters
backbone.dim=0 backbone.grid=-7 backbone.trainable=yes_please
model.heads=-2 model.encoder.layers=-1 model.d_ff=100000000000 model.dropout=nan
model.scale=none
objective.label_smoothing=1 objective.doubly_stochastic=inf
optimizer.lr=-1 optimizer.lr=nan optimizer.lr=fast optimizer.lr=null optimizer.betas=[2,3]
optimizer.betas=[0.9]
optimizer.backbone_lr=0 optimizer.weight_decay=-1 +optimizer.epsilon=1 optimizer._partial_=false
data.tokens=no_module.split callbacks.checkpoint=null model.heads=3
+trainer.limit_predict_batches=-1 +trainer.val_check_interval=0 +callbacks.checkpoint.save_top_k=0
trainer.max_epochs=0
schedule.warmup_steps=-5 schedule.decay=exponential
decoding.width=0 decoding.max_length=1000000000 decoding.n_best=4 decoding.length_penalty=nan
decoding.beam_widths=[1,0] decoding.beam_widths=[] decoding.beam_widths=[1,1] debug=3
decoding.filters=5 decoding.filters.prefix=a decoding.filters.forbidden=[[a]]
trainer.log_every_n_steps=0 trainer.accumulate_grad_batches=0 trainer.devices=0 trainer.devices=x
trainer.max_epochs=-5
trainer.gradient_clip_val=-1 trainer.limit_train_batches=0 trainer.limit_val_batches=1.5
trainer.accelerator=abacus
trainer.precision=8 +trainer.strategy=chess trainer.plugins=[abacus]
callbacks.checkpoint.mode=best callbacks.checkpoint.monitor=null
callbacks.early_stopping.patience=nan
callbacks.early_stopping.patience=-1 trainer.max_steps=0
callbacks.resume.every_n_steps=0 callbacks.results=5 logger.csv=5
model=sat_hard:objective.samples=0 model=sat_soft:model.d_embed=-1
decoding=sample:decoding.top_p=0 decoding=sample:decoding.seed=1e3
decoding=diverse_beam:decoding.groups=4
callbacks=averaged:callbacks.weight_averaging.decay=1.5 logger=wandb:logger.wandb.offline=maybe
data=flickr8k:data.root=null data=coco_official:data.reader.splits.val.part=[0,2]
backbone=vgg11:backbone.name=vgg12 backbone=squeezenet1_1:backbone.node=features.99
backbone=squeezenet1_1:backbone.trainable=features.1 backbone=timm:backbone.name=lite2
"""


@pytest.mark.parametrize("override", REFUSED.split())
def test_every_setting_is_checked_before_anything_is_read(override):
    *choice, override = override.split(":")
    changed = few(composed(*choice))
    setting = OverridesParser.create().parse_override(override)
    OmegaConf.update(changed, setting.key_or_group, setting.value(), force_add=setting.is_add())
    with pytest.raises(REFUSALS) as refusal:
        assembled(changed)
    assert setting.key_or_group.split(".")[0] in explain(refusal.value)


CHOICES = (
    "",
    "model=sat_hard decoding=sample schedule=cosine callbacks=averaged",
    "model=sat_soft decoding=diverse_beam data=coco_official data.root=. logger=wandb",
    "data=csv data.root=. decoding=greedy",
)
NUMBERS = [math.nan, math.inf, -math.inf, -1, 0, 1, 2**31, 2**63, 10**400, 1e308]
OTHERS = [None, True, "", "\0", "???", [], {}, [math.nan], [-1, 0], [None], {"_target_": 3}]
NASTY = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from([*OTHERS, {"_target_": "os.getcwd"}]),
    st.integers(-1000, 1000),
    st.floats(),
    st.text(max_size=20),
    st.text(max_size=5).map(lambda text: f"${{{text}}}"),
    st.lists(st.one_of(st.integers(), st.floats(), st.text(max_size=3)), max_size=3),
)


@given(st.sampled_from(CHOICES), st.data())
def test_whatever_is_set_is_taken_or_refused_in_a_sentence(overrides, data):
    changed = composed(*overrides.split())
    keys = sorted(keys_below(OmegaConf.to_container(changed)))
    for key in data.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3)):
        try:
            OmegaConf.update(changed, key, data.draw(NASTY, label=key))
        except (OmegaConfBaseException, TypeError):  # below one that has just been overwritten
            return
    with contextlib.suppress(*REFUSALS):
        checked(changed)


def keys_below(node, path=""):
    """Of all settings and groups in groups; whole groups are chosen by their names."""
    for name, value in node.items():
        key = f"{path}.{name}" if path else name
        if path or not isinstance(value, dict):
            yield key
        if isinstance(value, dict):
            yield from keys_below(value, key)


PRECISION = {"_target_": "lightning.pytorch.plugins.DoublePrecision"}


@pytest.mark.parametrize("given", [[], None, PRECISION, [PRECISION]])
def test_checkpoints_can_be_read_again_with_any_plugins(given):
    config = composed("callbacks.results=null", "test=false")
    config.folder = "nowhere"
    config.trainer.plugins = given
    if given:  # which Lightning takes in one of two ways
        config.trainer.precision = None
    checked(config)
    settings = check_settings(RunSettings, config)
    strategy = fit.build_trainer(settings, settings.trainer.precision).strategy
    assert isinstance(strategy.checkpoint_io, CheckpointFiles)
    assert isinstance(strategy.precision_plugin, DoublePrecision) == bool(given)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="here is a GPU")
@pytest.mark.parametrize("trainer", ["trainer=gpu", "trainer.precision=16-mixed"])
def test_a_gpu_that_is_not_there(trainer, monkeypatch):
    """Is missed before scenes are drawn."""

    @functools.wraps(ShapesReader.__call__)
    def drawn(reader):
        pytest.fail("scenes were drawn")

    monkeypatch.setattr(ShapesReader, "__call__", drawn)
    with refuses(r"(?i)gpu|cuda"):
        assembled(few(composed(trainer)))


def test_parts_are_built_once_and_refused_before_an_image_is_opened(elsewhere, monkeypatch, caplog):
    calls = Counter()

    def count(place, name, called):
        function = getattr(place, name)

        @functools.wraps(function)
        def counted(*given, **settings):
            calls[called] += 1
            return function(*given, **settings)

        monkeypatch.setattr(place, name, counted)

    count(ShapesReader, "__init__", "reader")
    count(ShapesReader, "__call__", "read")
    count(SmallCNN, "__init__", "backbone")
    count(Transformer, "__init__", "model")
    count(CrossEntropy, "__init__", "objective")
    count(torch.optim.Adam, "__init__", "optimizer")
    count(Trainer, "__init__", "trainer")
    count(CheckpointFiles, "__init__", "plugin")
    config = miniature(composed("metrics.test=[BLEU]"))
    config.test = True
    run.main.__wrapped__(config)
    assert calls == dict.fromkeys(calls, 1)
    assert len(calls) == 8

    shutil.rmtree("runs")
    count(Image, "open", "image")
    for override in ("objective=reinforce", "optimizer.weight_decay=-1", "data.max_words=2"):
        calls.clear()
        with pytest.raises(CaptioningError):
            small_run(override)
        assert calls["read"] == 1
        assert calls["image"] == 0
        assert not Path("runs").exists() or not list(Path("runs").iterdir())
