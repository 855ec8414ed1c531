"""Train a captioner and test it: `captioning run model=spatial_transformer`."""

import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf, open_dict

from captioning.config.arguments import given_keys
from captioning.config.command import command, start
from captioning.config.registry import CONF, drop_inherited
from captioning.config.schemas.run import RunSettings
from captioning.config.settings import check_settings, with_role
from captioning.config.types import Role
from captioning.files import JOIN
from captioning.machine import is_rank_zero
from captioning.pretrained.named import check_checkpoint, checkpoint_path
from captioning.report.summary import print_summary
from captioning.runs.checkpoints.monitors import LOSS, choose_loss, choose_loss_if_constant
from captioning.runs.folders.choices import add_choices
from captioning.runs.folders.folder import in_sweep
from captioning.runs.folders.run import RunFolder, identity
from captioning.runs.settings import in_some_folder

if TYPE_CHECKING:
    from captioning.backbones.base import Backbone
    from captioning.runs.checkpoints.initial import PretrainedWeights

log = logging.getLogger(__name__)


@command("config.yaml", RunSettings)
def main(settings: RunSettings) -> float | None:
    """Train and test; return the best validation score, for sweeps."""
    config = settings.composed
    apply_debug(config)
    ignore_size(config)
    add_choices(config)  # of the command, before the checkpoint's
    initial = None
    if config.init_from:
        check_checkpoint("init_from", config.init_from)
        from captioning.runs.checkpoints.initial import PretrainedWeights

        initial = PretrainedWeights(checkpoint_path(config.init_from))
        initial.complete(config, given_keys())  # what the command leaves open is as there
    if choose_loss(config):
        log.info(
            "metrics.val=[] decodes no captions: the best checkpoint is chosen by the loss, %s",
            LOSS,
        )
    return train(config, initial)


def train(config: DictConfig, initial: "PretrainedWeights | None" = None) -> float | None:
    """Compute features, train, choose, and test; an earlier run is resumed where it ended.

    Args:
        config: of the run; it gets its `folder`.
        initial: weights to begin from.
    """
    import lightning as L  # here, because PyTorch takes seconds, after the first checks

    from captioning.data.subset import training_subset
    from captioning.training import fit, inputs, setup
    from captioning.training.agreement import check_agreement, has_own_parts
    from captioning.training.selection import select

    # Otherwise Lightning tells of devices, files and products.
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    drop_inherited(config, given_keys(), with_role(RunSettings, Role.BESIDE))
    settings = check_settings(RunSettings, in_some_folder(config))
    parts = setup.check_parts(settings)
    L.seed_everything(settings.seed, workers=True, verbose=False)
    if initial:
        initial.check_architecture(settings.backbone, settings.model.part)

    backbone = setup.build_backbone(settings, parts, initial)  # its weights may be out of reach
    splits = setup.read_training_data(settings, parts)  # no image is opened
    if settings.data.skip_broken:  # whose words depend on the images that can be read
        splits = setup.check_images(settings, splits, backbone)
    data_set = splits
    splits, captions = training_subset(data_set, settings.data.plain)
    backbone.prepare(splits)  # for what it reads, and the words that it learns
    if choose_loss_if_constant(config, splits["val"]):
        settings = check_settings(RunSettings, in_some_folder(config))
    precision = fit.fitting_precision(settings.trainer)
    digests = identity(settings, data_set, backbone, initial)
    run = RunFolder(config, settings, digests, precision)

    if not run.finished:
        fit.log_precision(settings.trainer, run.precision)
        settings = check_settings(RunSettings, config)
        module = setup.build_module(settings, parts, splits, captions, backbone, initial)
        with run.open():
            if not run.finished:  # by another process meanwhile
                in_folder = check_settings(RunSettings, config)
                trainer = fit.build_trainer(in_folder, run.precision)
                if not settings.data.skip_broken:
                    setup.check_images(settings, splits, backbone)
                fit.start_processes(trainer)  # to compute features together
                data = inputs.open_inputs(settings, parts, splits, module, data_set["train"])
                if settings.debug or has_own_parts(module.model):
                    check_agreement(module, data)
                fit.fit(trainer, module, data, run.checkpoint())
                widths = settings.decoding.beam_widths
                best = select(trainer, module, data, widths, settings.test, run.result)
                run.finish(best)  # a test may fail and be repeated
                if settings.test:
                    trainer.test(module, data, verbose=False)
    if settings.test and is_rank_zero():
        print_summary(run.path)
        if not in_sweep():
            print_next(settings.runs, run.path, backbone)
    assert run.result is not None
    return run.result["best"]


def ignore_size(config: DictConfig) -> None:
    """Drop the size of a model that has one size, such as a user's in a sweep beside others."""
    size = config.model.get("size")
    if size and "${sized:" not in OmegaConf.to_yaml(config.model):
        config.model.size = None  # of which its name in tables is derived, too
        log.info("model.size=%s is ignored: %s has one size", size, config.choices.model)


def apply_debug(config: DictConfig) -> None:
    """Apply `conf/debug.yaml` with `debug=true`.

    What the command line sets stays.
    """
    if config.debug:
        given = given_keys()
        with open_dict(config):
            for key, value in OmegaConf.load(CONF / "debug.yaml").items():
                if key not in given:
                    OmegaConf.update(config, str(key), value)


def print_next(runs: str, folder: Path, backbone: "Backbone") -> None:
    """Print the commands that a user probably wants after a run."""
    print("next:", shlex.join(["captioning", "report", f"runs={runs}"]))
    if backbone.reads_images:
        print(
            f"      captioning predict {JOIN.join(['PHOTOGRAPH'] * backbone.images)} "
            f"{shlex.quote(f'checkpoint={folder}/checkpoints/best.ckpt')}"
        )


if __name__ == "__main__":
    start(main)
