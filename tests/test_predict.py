"""Captions on standard output, trouble on standard error, panels in a folder: the command as a user
runs it.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from json_files import parsed
from PIL import Image
from processes import ENVIRONMENT, forked
from support import Terminal, called, composed

import captioning
from captioning.errors import CaptioningError
from captioning.predict import ErrorCounter, find_inputs, main
from captioning.runs.evaluation.attention_file import read

UNREADABLE = ["bomb.png", "cut.jpg", "empty.png", "text.jpg"]
READABLE = ["a.jpg", "b.PNG", "c.webp", "large.jpg", "rgba.png", "strange.jpg", "sub/a.png"]
READABLE += ["sub/deeper/a.jpg", "tiny.png", "ü.jpg"]
"""In the order of their captions."""


@pytest.fixture(scope="module")
def photographs(tmp_path_factory, shapes_run):
    """A folder with every kind of file, made from the scenes that the captioner knows; no two files
    are alike.
    """
    folder = tmp_path_factory.mktemp("photographs")
    (folder / "sub" / "deeper").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    scenes = [Image.open(path).convert("RGB") for path in shapes_run.photographs]
    for i, name in enumerate(
        ("a.jpg", "b.PNG", "c.webp", "sub/a.png", "sub/deeper/a.jpg", "ü.jpg", ".hidden/a.jpg")
    ):
        scenes[i % 5].rotate(10 * i).save(folder / name)
    scenes[0].save(folder / ".a.jpg")
    scenes[2].resize((4000, 3000)).save(folder / "large.jpg")
    scenes[4].convert("RGBA").save(folder / "rgba.png")
    scenes[3].crop((0, 0, 1, 1)).save(folder / "tiny.png")
    # Pillow warns of it and reads the picture
    scenes[0].save(folder / "strange.jpg", exif=b"Exif\0\0II*\0 cut short")
    Image.new("1", (20_000, 20_000)).save(folder / "bomb.png")
    (folder / "cut.jpg").write_bytes((folder / "a.jpg").read_bytes()[:500])
    (folder / "empty.png").touch()
    (folder / "text.jpg").write_text("no photograph")
    (folder / "notes.txt").write_text("not meant")
    return folder


@pytest.fixture
def predicted(capsys, shapes_run):
    """The captions of a command that ends well."""

    def run(*overrides):
        called(main, "device=cpu", f"checkpoint={shapes_run.checkpoint}", *overrides)
        out, err = capsys.readouterr()
        assert err == ""
        return [line["caption"] for line in parsed(out)]

    return run


@pytest.mark.filterwarnings(
    "ignore:Corrupt EXIF data"
)  # a warning is an error here, not for the user
def test_a_folder_with_all_kinds_of_files(shapes_run, photographs, tmp_path):
    given = ["device=cpu", f"checkpoint={shapes_run.checkpoint}", "batch_size=3"]
    ended = forked("predict", tmp_path, *given, f"images={photographs}")
    lines = parsed(ended.stdout)
    assert [line["image"] for line in lines] == [str(photographs / name) for name in READABLE], (
        ended.stderr
    )
    assert "ü.jpg" in ended.stdout
    expected = captioning.load(shapes_run.checkpoint, "cpu").caption(
        [photographs / name for name in READABLE]
    )
    assert [line["caption"] for line in lines] == [prediction.caption for prediction in expected]
    scores = [line["score"] for line in lines]
    assert scores == pytest.approx([prediction.score for prediction in expected], abs=1e-3)
    assert len(set(scores)) > 1
    assert {line["confidence"] for line in lines} == {None}  # it has learned next to nothing
    assert ended.returncode == 1
    passed_over, *complaints = ended.stderr.splitlines()
    assert passed_over == f"{photographs}: left out files of other kinds: 1 (.txt)"
    for complaint, name in zip(complaints, UNREADABLE, strict=True):
        assert complaint.startswith(f"error: cannot read the image {photographs / name}: ")

    some = [
        str(photographs / name)
        for name in ("a.jpg", "sub/a.png", "sub/deeper/a.jpg", "tiny.png", "ü.jpg")
    ]
    ended = forked("predict", tmp_path, *given, *some, "attention=true")
    lines = parsed(ended.stdout)
    panels = [tmp_path / line["panel"] for line in lines]
    assert [path.name for path in panels] == ["a.png", "a-2.png", "a-3.png", "tiny.png", "ü.png"]
    drawn = [panel.with_suffix(suffix) for panel in panels for suffix in (".pdf", ".png")]
    maps = tmp_path / "attention" / "attention.npz"
    assert sorted([*drawn, maps]) == sorted((tmp_path / "attention").iterdir())
    assert [(each.image_id, " ".join(each.words)) for each in read(maps)] == [
        (x["image"], x["caption"]) for x in lines
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"attention"}


def test_a_reader_that_has_enough(shapes_run):
    images = ",".join(map(str, shapes_run.photographs * 4))
    command = [sys.executable, "-m", "captioning.predict", "device=cpu", "batch_size=1"]
    command += [f"checkpoint={shapes_run.checkpoint}", f"images=[{images}]"]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert json.loads(process.stdout.readline())["caption"] == shapes_run.captions[0]
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_photographs_are_words_of_the_command_line(shapes_run, tmp_path):
    """And a misspelt setting is no photograph; what is missing does not stop the others."""
    names = ["its owner's [1].png", "${HOME}.png"]
    for name, scene in zip(names, shapes_run.photographs, strict=False):
        shutil.copy(scene, tmp_path / name)
    settings = ["device=cpu", f"checkpoint={shapes_run.checkpoint}"]
    ended = forked("predict", tmp_path, names[0], *settings, names[1], "bath_size")
    lines = parsed(ended.stdout)
    assert [line["image"] for line in lines] == names, ended.stderr
    assert [line["caption"] for line in lines] == shapes_run.captions[:2]
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: no photographs at images=bath_size: name a file, ")
    assert ended.stderr.endswith("settings are KEY=VALUE\n")


def test_a_terminal_gets_lines_to_read(shapes_run, elsewhere, monkeypatch):
    """And nothing that it would obey."""
    shutil.copy(shapes_run.photographs[0], "a\x1b[2Jb.png")
    given = ["device=cpu", "checkpoint=pretrained", "images=.", "attention=true"]
    given += ["decoding.n_best=2"]
    config = composed(*given, name="predict")
    with Terminal(80, monkeypatch, "stdout") as terminal:
        main.__wrapped__(config)
    best = captioning.load("pretrained", "cpu", {"n_best": 2}).caption("a\x1b[2Jb.png")[0]
    (other,) = best.alternatives
    first = f"a [2Jb.png: {best.caption} (confidence {best.confidence:.2f})"
    shown = [first, f"    {other.caption}", "    attention/a [2Jb.png"]
    assert terminal.text == "".join(f"{line}\n" for line in shown)


def test_what_is_found(photographs, tmp_path):
    def found(images, folder=photographs):
        problems = ErrorCounter()
        names = [str(path.relative_to(folder)) for (path,) in find_inputs(images, problems)]
        assert problems.count == 0
        return names

    everything = sorted([*READABLE, *UNREADABLE])
    assert found(str(photographs)) == everything
    assert found(f"{photographs}/*.png") == [
        name for name in everything if name.endswith("png") and "/" not in name
    ]
    assert found(f"{photographs}/sub/**") == ["sub/a.png", "sub/deeper/a.jpg"]
    assert found(f"{photographs}/**/a.*") == ["a.jpg", "sub/a.png", "sub/deeper/a.jpg"]
    names = ["tiny.png", "notes.txt", "sub", "tiny.png"]
    several = [f"{photographs}/{name}" for name in names]
    assert found(several) == [*names[:2], "sub/a.png", "sub/deeper/a.jpg", "tiny.png"]
    for name in ("a[1].jpg", "a1.jpg"):
        (tmp_path / name).touch()
    assert found(f"{tmp_path}/a[1].jpg", tmp_path) == ["a[1].jpg"]  # no pattern


@pytest.mark.parametrize(
    "images", ["*.jpg", ".", ["absent.jpg", "*.png"], "a" * 5000, "a/" * 3000, "~nobody-of-this/x"]
)
def test_nothing_found_is_an_error(images, elsewhere, capsys):
    Path("notes.txt").touch()
    Path("some.ckpt").touch()
    config = composed("checkpoint=some.ckpt", name="predict")
    config.images = images
    with pytest.raises(SystemExit) as ended:
        main.__wrapped__(config)
    assert ended.value.code == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert all(
        line.startswith("error: no photographs at images=") and len(line) < 400
        for line in err.splitlines()
    )
    assert len(err.splitlines()) == (len(images) if isinstance(images, list) else 1)


@pytest.mark.parametrize(
    "given, message",
    [
        (["images=[]"], "no photographs are given"),
        (["images=."], "checkpoint"),
        (["images=.", "batch_size=0"], "batch_size=0"),
        (["images=scene.png", "maps='inter 3'"], r"maps=inter 3 .* mean, all, inter 1 1"),
        (
            ["images=scene.png", "decoding.ensemble=[trained.ckpt,trained.ckpt]", "maps=all"],
            "of an ensemble",
        ),
    ],
)
def test_settings_that_cannot_be(shapes_run, elsewhere, given, message):
    if "images=scene.png" in given:
        shutil.copy(shapes_run.photographs[0], "scene.png")
        given = [*given, "attention=true", "checkpoint=trained.ckpt"]
    shutil.copy(shapes_run.checkpoint, "trained.ckpt")
    Path("taken").touch()
    with pytest.raises((CaptioningError, OSError), match=message):
        called(main, "device=cpu", "checkpoint=a.ckpt", *given)


def test_maps_of_layers_and_heads(shapes_run, elsewhere, predicted):
    images = [f"images={shapes_run.photographs[0]}", "attention=true"]
    sizes = {}
    for maps in ("mean", "inter 1 2", "all"):
        predicted(*images, f"panels={maps.replace(' ', '_')}", f"maps='{maps}'")
        (panel,) = Path(maps.replace(" ", "_")).glob("*.png")
        with Image.open(panel) as picture:
            sizes[maps] = picture.size
    assert sizes["mean"] == sizes["inter 1 2"]
    words = len(shapes_run.captions[0].split())
    assert (
        sizes["all"][0] > sizes["all"][1] * words / 3
    )  # two lines, a cell for each word in either
