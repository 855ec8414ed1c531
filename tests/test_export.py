"""An exported captioner gives the captions of its checkpoint in every command that takes one."""

import shutil
from pathlib import Path

import pytest
import torch
from json_files import parsed
from support import QUIET, called, small_run

import captioning
from captioning import evaluate, predict
from captioning.errors import CaptioningError
from captioning.export.__main__ import main
from captioning.runs.checkpoints.checkpoint import load_checkpoint, write_safetensors
from captioning.runs.checkpoints.initial import PretrainedWeights
from captioning.runs.folders.run import latest_valid_checkpoint

pytestmark = QUIET

SMALL = [
    "callbacks.attention=null",
    "callbacks.pointing=null",
    "metrics.val=[CIDEr]",
    "model=sat_hard",
    "model.size=small",
]
"""With a baseline in its objective, which is no part of what captions."""
RUN = Path("runs/trial-sat_hard_small-seed1")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a run in it, whose backbone is trained."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        assert small_run("name=trial", *SMALL) is not None
        called(main, f"checkpoint={RUN}/checkpoints/best.ckpt", "output=shared")
    return home


@pytest.fixture(autouse=True)
def _at_home(home, monkeypatch):
    monkeypatch.chdir(home)


BEST = RUN / "checkpoints" / "best.ckpt"
SHARED = Path("shared")


def test_beside_the_checkpoint_with_its_weights_and_nothing_else(capsys):
    called(main, f"checkpoint={BEST}")
    output = BEST.with_suffix(".safetensors")
    assert output.read_bytes() == SHARED.read_bytes()
    assert capsys.readouterr().out.startswith(f"{output}: ")
    saved, shared = load_checkpoint(BEST), load_checkpoint(SHARED)
    assert {name.partition(".")[0] for name in saved.state} == {"backbone", "model", "objective"}
    assert {name.partition(".")[0] for name in shared.state} == {"backbone", "model"}
    output.unlink()
    for given in (
        ["checkpoint=shared", "output=again"],
        [f"checkpoint={BEST}", "output=again", "overwrite=true"],
    ):
        called(main, *given)
        assert Path("again").read_bytes() == SHARED.read_bytes()


def test_every_command_says_the_same_of_it(capsys):
    """To the bit; a run that begins from it has the weights of the checkpoint."""
    photographs = sorted(Path("cache").rglob("*.png"))
    ours, theirs = (captioning.load(path, "cpu").caption(photographs) for path in (SHARED, BEST))
    assert len({p.score for p in theirs}) == len(photographs) > 3
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.caption, mine.score) == (other.caption, other.score)
        assert torch.equal(mine.attention, other.attention)
    lines = []
    for name in ("checkpoint=shared", f"checkpoint={BEST}", f"decoding.ensemble=[shared,{BEST}]"):
        called(predict.main, name, "images=cache", "device=cpu")
        lines.append(parsed(capsys.readouterr().out))
    assert lines[0] == lines[1]
    assert [line["caption"] for line in lines[2]] == [line["caption"] for line in lines[0]]
    for path, name in ((SHARED, "ours"), (BEST, "theirs")):
        given = [f"checkpoint={path}", f"name={name}", "metrics=[BLEU,CIDEr]", "device=cpu"]
        called(evaluate.main, *given)
    assert (
        Path("runs/ours/captions.jsonl").read_text()
        == Path("runs/theirs/captions.jsonl").read_text()
    )
    assert PretrainedWeights(SHARED).digest == PretrainedWeights(BEST).digest


def test_half_of_the_size_says_the_same():
    """To what rounding a weight's eleventh bit comes to; what computes is in single precision."""
    called(main, f"checkpoint={BEST}", "output=half", "half=true")
    whole, half = load_checkpoint(SHARED).state, load_checkpoint(Path("half")).state
    weights = {
        name for name, tensor in whole.items() if tensor.dim() > 1 and tensor.is_floating_point()
    }
    for name in whole:
        assert half[name].dtype == (torch.half if name in weights else whole[name].dtype)
        torch.testing.assert_close(
            half[name].to(whole[name].dtype), whole[name], rtol=2**-11, atol=2**-25
        )
    saved = 2 * sum(whole[name].numel() for name in weights)
    assert abs(SHARED.stat().st_size - Path("half").stat().st_size - saved) < 0.05 * saved
    photographs = sorted(Path("cache").rglob("*.png"))
    theirs, ours = (captioning.load(path, "cpu") for path in (SHARED, "half"))
    assert {parameter.dtype for parameter in ours.networks[0].model.parameters()} == {torch.float32}
    for mine, other in zip(ours.caption(photographs), theirs.caption(photographs), strict=True):
        assert mine.caption == other.caption
        assert mine.score == pytest.approx(other.score, rel=1e-3)


@pytest.mark.parametrize(
    "given, key",
    [
        (["output=mine"], "output=mine"),
        ([f"output={BEST}", "overwrite=true"], "is the checkpoint itself"),
        (["checkpoint=pretrained"], "is the checkpoint itself"),
        (["output=runs", "overwrite=true"], "runs"),
        (["output=nowhere/a"], "nowhere/a"),
        (["checkpoint=runs"], "checkpoint=runs"),
        (["checkpoint=mine", "output=a"], "checkpoint=mine"),
        (["checkpoint=large", "output=a", "half=true"], "model.head.hidden.weight"),
        (["output=a", "format=onnx"], "format"),
    ],
    ids=str,
)
def test_what_is_refused_leaves_everything_as_it_was(refused, given, key):
    Path("mine").write_text("mine")
    saved = load_checkpoint(SHARED)
    saved.state["model.head.hidden.weight"] = torch.full(
        (2, 2), 70_000.0
    )  # more than half precision holds
    write_safetensors(Path("large"), saved.config, saved.words, saved.state)
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    assert key in refused(
        main, *([] if given[0].startswith("checkpoint") else [f"checkpoint={BEST}"]), *given
    )
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before


def test_no_training_goes_on_from_it(tmp_path, caplog):
    """In the place of a run's checkpoint."""
    (tmp_path / "checkpoints").mkdir()
    shutil.copy(SHARED, tmp_path / "checkpoints" / "last.ckpt")
    with pytest.raises(CaptioningError):
        latest_valid_checkpoint(tmp_path)
    assert f"init_from={tmp_path}/checkpoints/last.ckpt" in caplog.text
