"""What an earlier version wrote is refused, until the script of the renaming has rewritten it."""

import json
import shutil

import pytest
import torch
import yaml
from refusals import refuses

import captioning
from captioning.runs.checkpoints.checkpoint import with_digest
from captioning.runs.settings import read_settings
from experiments.renaming import rewrite

pytestmark = pytest.mark.soak  # it guards runs of an earlier version
OLD = {
    "model": {"d_model": "d_feat", "d_ff": "d_hidden", "conditioning": "enter"},
    "decoding": {"beam_widths": "select"},
}
MODULES = """# mine
defaults: [transposed, layers@behind, _self_]
_target_: captioning.models.parts.transposed.Transposed
doublings: 2  # finer
behind: {d_feat: "${..d_feat}", d_hidden: 7, heads: 2}
resize: squash
objective: {credit: future, eos: false}
score: {reach: 4}
params: {decoding.select: "[1],[3]"}
"""
RENEWED = """# mine
defaults: [transposed, layers@encoder, _self_]
_target_: captioning.models.parts.encoders.Transposed
upsample_steps: 2  # finer
encoder: {d_model: ${..d_model}, d_ff: 7, heads: 2}
resize: stretch
objective: {reward_to_go: true, reward_eos: false}
score: {kernel_size: 5}
params: {decoding.beam_widths: "[1],[3]"}
"""


def earlier(settings):
    """The same settings as a version before the renaming wrote them."""
    groups = {
        group: {OLD.get(group, {}).get(key, key): value for key, value in node.items()}
        for group, node in settings.items()
        if isinstance(node, dict)
    }
    old = settings | groups
    old["backbone"]["resize"] = "squash"
    encoder = old["model"]["encoder"]
    old["model"]["encoder"] = {OLD["model"].get(key, key): v for key, v in encoder.items()}
    del old["decoding"]["early_stopping"], old["data"]["language"], old["data"]["tokens"]
    return {key: value for key, value in old.items() if key != "format"}


def test_what_an_earlier_version_wrote_gives_the_same_captions(shapes_run, tmp_path):
    folder = shutil.copytree(shapes_run.folder, tmp_path / "runs" / shapes_run.folder.name)
    saved = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)
    inside = saved["captioning"]
    del saved["digest"], inside["format"]
    inside["config"] = earlier(inside["config"])
    inside["config"]["decoding"]["early_stopping"] = False
    torch.save(with_digest(saved), folder / "checkpoints" / "best.ckpt")
    config, record = folder / "config.yaml", folder / "run.json"
    settings, digests = read_settings(config), json.loads(record.read_text())
    old = earlier(yaml.safe_load(config.read_text())) | {"overrides": ["model.d_feat=8"]}
    old["decoding"]["early_stopping"] = False
    config.write_text(yaml.safe_dump(old))
    outdated = {**digests["digests"], "settings": "old"}
    record.write_text(json.dumps(digests | {"digests": outdated}))
    (tmp_path / "mine.yaml").write_text(MODULES)
    scores = json.loads((folder / "scores.json").read_text())
    added = ("signatures", "images_tested", "images_of_split")
    about = {name: scores["provenance"][name] for name in scores["provenance"] if name not in added}
    (folder / "scores.json").write_text(json.dumps(scores | {"provenance": about}))

    for read in (read_settings, captioning.load):
        path = config if read is read_settings else folder / "checkpoints" / "best.ckpt"
        with refuses(r"experiments/renaming/rewrite\.py"):
            read(path)
    rewrite.main([tmp_path])
    assert (tmp_path / "mine.yaml").read_text() == RENEWED
    assert read_settings(config) == settings | {"overrides": ["model.d_model=8"]}
    assert json.loads(record.read_text()) == digests
    assert json.loads((folder / "scores.json").read_text()) == scores
    captions = captioning.load(folder / "checkpoints" / "best.ckpt").caption(shapes_run.photographs)
    assert [caption.caption for caption in captions] == shapes_run.captions


def test_what_has_today_s_names_stays_as_it_is(shapes_run, capsys):
    rewrite.main([shapes_run.folder])
    assert capsys.readouterr().out == ""
