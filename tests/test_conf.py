"""Every file of the configuration composes, and all that a CPU can do in miniature takes a step."""

import pytest
import torch
from data.readers.layouts import LAYOUTS, parallel
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from support import QUIET, assembled, composed, make_photographs, miniature

from captioning import run
from captioning.config.registry import CONF
from captioning.runs.settings import each_setting

pytestmark = QUIET

OPTIONS = [
    (str(path.parent.relative_to(CONF)), path.stem)
    for path in sorted(CONF.glob("*/*.yaml"))
    if not path.stem.startswith("_")
    and path.parent.name != "download"  # a root of its own: tests/download
]
FOR_ONE_MODEL = sorted({file.parent for file in CONF.glob("experiment/*/*.yaml")})
NEEDS_MORE = {
    ("trainer", "gpu"): "needs a GPU",
    ("trainer", "ddp"): "needs GPUs",
    ("callbacks", "compiled"): "needs a compiler",
    ("logger", "wandb"): "starts a service: tests/test_wandb_run.py",
}
BESIDE = {
    group: [name for each, name in OPTIONS if each == group and (each, name) not in NEEDS_MORE]
    for group in ("callbacks", "decoding", "logger", "optimizer", "schedule", "trainer")
}
"""Options that take their steps with the models, each with several of them."""
ALONE = [(group, option) for group, option in OPTIONS if option not in BESIDE.get(group, ())]
LARGE = ("table1", "table1_flickr30k", "sat_soft_coco", "sat_hard_coco")
"""Experiments with a backbone that has its own turn, and takes long."""
WITH = {
    ("objective", "reinforce"): ["model=sat_hard"],
    ("objective", "doubly_stochastic"): ["model=sat_soft"],
    **{("experiment", name): ["backbone=small_cnn"] for name in LARGE},
    ("model", "language_model"): ["model.size=small"],
    ("experiment", "data_size"): ["data.train_images=2"],
}
"""What an option needs beside it."""
BACKBONES = {
    "vgg11": ["backbone=small_cnn"],  # a large one has its own turn
    "bundled": ["backbone=small_cnn"],
}
"""What replaces the default backbone of a data set."""
OF = ["backbone@backbone.of=small_cnn", "backbone.of.grid=6"]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    return make_photographs(tmp_path_factory.mktemp("photographs"))


@pytest.fixture
def quick(monkeypatch):
    """Large weights are the same few random numbers again and again, and captions are split at
    blanks, not by Java.
    """

    def repeated(draw):
        def fill(tensor, *args, **kwargs):
            if tensor.is_meta or tensor.numel() < 2**18 or not tensor.is_contiguous():
                return draw(tensor, *args, **kwargs)
            few, flat = draw(torch.empty(2**16), *args, **kwargs), tensor.detach().view(-1)
            for part in flat.split(len(few)):
                part.copy_(few[: len(part)])
            return tensor

        return fill

    for name in ("uniform_", "normal_"):
        monkeypatch.setattr(torch.Tensor, name, repeated(getattr(torch.Tensor, name)))
    monkeypatch.setattr(
        "captioning.metrics.scorer.ptb_tokenize", lambda captions, *_: list(captions)
    )


@pytest.mark.parametrize("name", [path.stem for path in sorted(CONF.glob("*.yaml"))])
def test_main_files_compose(name):
    assert OmegaConf.to_container(composed(name=name), resolve=True)


@pytest.mark.parametrize("folder", FOR_ONE_MODEL, ids=lambda folder: folder.name)
def test_what_an_experiment_sets_for_one_model_reaches_it_and_no_other(folder):
    set_for = {
        file.stem: dict(each_setting(OmegaConf.to_container(OmegaConf.load(file))))
        for file in folder.iterdir()
    }
    chosen = {model: [f"experiment={folder.name}", f"model={model}"] for model in set_for}
    configs = {model: composed(*overrides) for model, overrides in chosen.items()}
    for model, settings in set_for.items():
        found = {
            other: {key: OmegaConf.select(config, key, default=folder) for key in settings}
            for other, config in configs.items()
        }
        assert found[model] == settings
        assert any(differs != settings for differs in found.values()), model
    said = composed(*chosen[model], *(f"{key}=7" for key in settings))
    assert {OmegaConf.select(said, key) for key in settings} == {7}


def with_files(photographs, *overrides):
    config = composed(*overrides)
    if OmegaConf.is_missing(config.data, "root"):
        config.data.root = str(photographs)
    if OmegaConf.is_missing(config.data, "name"):
        config.data.name = str(photographs / "hub")
    if OmegaConf.is_missing(config.backbone, "path"):
        config.backbone.path = str(photographs / "features.npz")
    assert OmegaConf.to_container(config, resolve=True)
    return miniature(config)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "group, option",
    [
        pytest.param(*pair, marks=pytest.mark.soak if pair[0] == "experiment" else ())
        for pair in ALONE
    ],
)
def test_options_take_a_step(group, option, photographs, elsewhere):
    overrides = [*WITH.get((group, option), []), f"{group}={option}"]
    if group == "data":
        assert option in LAYOUTS, "a function in tests/data/readers/layouts.py writes its files"
        composed(*overrides)
        overrides += BACKBONES.get(HydraConfig.get().runtime.choices.backbone, [])
    elif group == "model":
        number = ALONE.index((group, option))
        overrides += [f"{other}={each[number % len(each)]}" for other, each in BESIDE.items()]
    config = with_files(photographs, *overrides)
    if (group, option) not in NEEDS_MORE:
        takes_a_step(config, elsewhere)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("option", [option for group, option in ALONE if group == "experiment"])
def test_an_experiment_is_built(option, photographs, elsewhere):
    overrides = WITH.get(("experiment", option), [])
    assembled(with_files(photographs, f"experiment={option}", *overrides))


def takes_a_step(config, home):
    score = run.main.__wrapped__(config)  # beneath Hydra's command line
    assert score >= 0
    (folder,) = (home / config.runs).iterdir()
    assert (folder / "checkpoints" / "best.ckpt").exists()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "name, experiment",
    [
        ("speech", "speech"),
        ("moving_shapes", "moving_shapes"),
        ("two_languages", "two_languages"),
        ("two_languages", "multi30k"),
    ],
)
def test_experiments_with_modules_of_their_own_take_a_step(name, experiment, elsewhere):
    """As with `--config-dir experiments/NAME`."""
    files = CONF.parent / "experiments" / name
    config = composed(f"hydra.searchpath=[file://{files}]", f"experiment={experiment}")
    if OmegaConf.is_missing(config.data, "root"):
        parallel(elsewhere)
        config.data.root = str(elsewhere)
    takes_a_step(miniature(config), elsewhere)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "name, data, backbone",
    [
        ("several_images", "r2gen", OF),
        ("several_images", "levir_cc", OF),
        ("languages_flickr8k", "flickr8k_languages", ["backbone=small_cnn"]),
        ("languages_flickr8k", "flickr8k_german", ["backbone=small_cnn"]),
        ("languages_flickr8k", "flickr8k_chinese", ["backbone=small_cnn"]),
        ("textcaps", "textcaps", ["backbone=small_cnn"]),
        ("clips_flickr8k", "frames", [*OF, "backbone.of.trainable=false"]),
        ("clips_flickr8k", "msrvtt", []),
    ],
)
def test_data_sets_outside_the_package_take_a_step(name, data, backbone, photographs, elsewhere):
    files = CONF.parent / "experiments" / name
    place = f"hydra.searchpath=[file://{files}]"
    takes_a_step(with_files(photographs, place, f"data={data}", *backbone), elsewhere)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "name, backbone", [("languages_flickr8k", ["backbone=small_cnn"]), ("clips_flickr8k", [])]
)
def test_an_experiment_with_parts_of_its_own_is_built(name, backbone, photographs):
    files = CONF.parent / "experiments" / name
    place = f"hydra.searchpath=[file://{files}]", f"experiment={name}"
    assembled(with_files(photographs, *place, *backbone))
