"""Everything that commands name after an image, where names differ in little."""

from pathlib import Path

import pytest
from json_files import parsed, read_lines
from pictures import noise
from processes import forked
from support import FROZEN, TINY

from captioning.runs.evaluation.attention_file import read

NAMES = ("a/13.jpg", "b/13.jpg", "scan.26", "scan.27", "x.jpg", "x.png", "X.jpg", "a_13.jpg")
FORMATS = {"scan.26": "JPEG", "scan.27": "PNG"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run that was tested on these images, evaluated and reported, and their captions."""
    home = tmp_path_factory.mktemp("home")
    for number, name in enumerate((*NAMES, "train.jpg", "val.jpg")):
        path = home / "data" / "images" / name
        noise(path.with_name("image.png" if name in FORMATS else path.name), (48, 48), number)
        if name in FORMATS:
            path.with_name("image.png").rename(path)
    splits = dict.fromkeys(NAMES, "test") | {"train.jpg": "train", "val.jpg": "val"}
    rows = [f"{name},a dog {split},{split}" for name, split in splits.items() for _ in range(2)]
    (home / "data" / "captions.txt").write_text("\n".join(["image,caption,split", *rows]))
    every = ["callbacks.attention.images=99", "callbacks.kept_attention.images=99"]
    for command, *arguments in (
        ("run", *TINY, *FROZEN, "data=csv", "metrics.val=[]", *every),
        ("evaluate", "checkpoint=CHECKPOINT", "metrics=[BLEU]", "save_attention=99", "device=cpu"),
        ("report.__main__", "runs=runs", "page.embed_mb=0"),
        ("predict", "checkpoint=CHECKPOINT", "attention=true", "device=cpu", "save_attention=99"),
    ):
        found = [str(path) for path in home.glob("runs/*/checkpoints/best.ckpt")]
        arguments = [each.replace("CHECKPOINT", *found[:1] or [""]) for each in arguments]
        if command == "predict":
            arguments += [f"data/images/{name}" for name in NAMES]
        ended = forked(command, home, *arguments)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        (home / f"{command}.txt").write_text(ended.stdout)
    return home


def differ(files):
    """One for each image, of another name on any file system, and of other content."""
    assert len(files) == len(NAMES), files
    assert len({str(file).casefold() for file in files}) == len(NAMES)
    assert len({file.read_bytes() for file in files}) == len(NAMES)


def test_panels_of_a_run(home):
    (folder,) = home.glob("runs/*/attention")
    differ([*folder.glob("*.png")])
    assert {file.stem for file in folder.glob("*.png")} == {
        file.stem for file in folder.glob("*.pdf")
    }
    assert (folder / "a_13.jpg.png").is_file()
    assert (folder / "scan.27.png").is_file()


def test_captions_and_maps_of_runs_and_evaluations(home):
    folders = [file.parent for file in home.rglob("captions.jsonl")]
    assert len(folders) == 2
    for folder in folders:
        assert [line["image_id"] for line in read_lines(folder / "captions.jsonl")] == [*NAMES]
        assert [record.image_id for record in read(folder / "attention.npz")] == [*NAMES]


def test_photographs_of_a_report(home):
    differ([*(home / "report" / "photographs").iterdir()])


def test_panels_of_predictions(home):
    lines = parsed((home / "predict.txt").read_text())
    assert [line["image"] for line in lines] == [f"data/images/{name}" for name in NAMES]
    differ([home / line["panel"] for line in lines])
    (folder,) = {(home / line["panel"]).parent for line in lines}
    assert [Path(record.image_id).name for record in read(folder / "attention.npz")] == [
        Path(name).name for name in NAMES
    ]
