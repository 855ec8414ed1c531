"""Folders of runs that strangers have written: what is wrong is left out, and the rest is shown."""

import json
from pathlib import Path

import pytest
import yaml
from json_files import changed_json
from written import SAID, write_photographs, write_run

from captioning.config.command import start
from captioning.data.shapes import ShapesReader
from captioning.errors import CaptioningError
from captioning.report.__main__ import main as report
from captioning.report.compare.__main__ import main as compare
from captioning.report.gallery import noun_boxes
from captioning.runs.__main__ import main as runs

DIGITS = 400 * "9"
pytestmark = pytest.mark.usefixtures("elsewhere")


def run(name, model):
    """One on the three photographs."""
    images = write_photographs(Path("data/test"), 3)
    return write_run(Path("runs", name), model, said=SAID, ciders=[1.0, 2.0, 3.0], images=images)


def settings(folder, **changes):
    """Change settings by their keys, with underscores for dots."""
    file = folder / "config.yaml"
    config = yaml.safe_load(file.read_text())
    for key, value in changes.items():
        *groups, name = key.split("__")
        group = config
        for each in groups:
            group = group.setdefault(each, {})
        group[name] = value
    file.write_text(yaml.safe_dump(config))


def written(name, text):
    return lambda folder: (folder / name).write_text(text)


def appended(text):
    """Settings that no library writes so."""

    def write(folder):
        with (folder / "config.yaml").open("a") as file:
            file.write(text)

    return write


def changed(**changes):
    return lambda folder: settings(folder, **changes)


def dangling(folder):
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "x.ckpt").symlink_to("nowhere")


def scored(**provenance):
    def change(folder):
        with changed_json(folder / "scores.json") as scores:
            scores["provenance"] |= provenance

    return change


HEXADECIMAL = "0x" + 5000 * "f"
DAMAGE = {
    "no step": written("metrics.csv", "epoch,val/CIDEr\n1,2\n"),
    "step nan": written("metrics.csv", "step,val/CIDEr\nnan,2\n"),
    "step endless": written("metrics.csv", "step,val/CIDEr\n1e99,2\n"),
    "home of nobody": changed(data__reader__root="~nobody-of-that-name/x"),
    "home of no name": changed(data__reader__root="~\0"),
    "root a list": changed(data__reader__root=["x"]),
    "images text": changed(backbone__images="x"),
    "images a list": changed(backbone__images=[1]),
    "images a fraction": changed(backbone__images=2.5),
    "images many": changed(backbone__images=321),
    "images a long number": changed(backbone__images=int(DIGITS)),
    "resize a list": changed(backbone__images=2, backbone__of__resize=[1]),
    "seed of many digits": appended(f"\nseed: {HEXADECIMAL}\n"),
    "rate of many digits": appended(f"\noptimizer: {{lr: {HEXADECIMAL}}}\n"),
    "key of many digits": appended(f"\n? {HEXADECIMAL}\n: 1\n"),
    "seed text": changed(seed="three"),
    "title a list": changed(model__title=[1]),
    "monitor a group": changed(callbacks__checkpoint__monitor={"a": 1}),
    "overrides a number": changed(overrides=3),
    "overrides of many kinds": changed(overrides=["=", 3, "a=["], config_dir=[1]),
    "choices a list": changed(choices=["a"]),
    "language a list": lambda folder: (
        settings(folder, data__language=["x"], data__tokens=3),
        scored(references={"sha256": "0" * 64})(folder),
    ),
    "dangling link": dangling,
    "steps of many digits": written("run.json", f'{{"done": {DIGITS}}}'),
    "steps fewer than none": written("run.json", '{"done": -5}'),
    "deep record": written("run.json", 10**5 * "["),
    "endless score": written("scores.json", f'{{"scores": {{"CIDEr": {DIGITS}}}}}'),
    "deep scores": written("scores.json", 10**5 * "["),
    "caption a number": written("captions.jsonl", '{"image_id": 1, "caption": 5}\n'),
    "deep captions": written("captions.jsonl", 10**5 * "[" + "\n"),
    "photographs without end": written(
        "captions.jsonl",
        json.dumps({"image_id": 1, "caption": "a", "photograph": "+".join(400 * ["1.png"])}),
    ),
    "no archive of maps": written("attention.npz", "x"),
}


def test_damaged_runs_hide_no_other(printed):
    folders = [run("a", "before"), *(run(name, f"of {name}") for name in DAMAGE), run("z", "after")]
    for folder, damage in zip(folders[1:], DAMAGE.values(), strict=False):
        damage(folder)
    listed = printed(runs, "folders=[runs]")
    shown = printed(report, "runs=runs", "metrics=[]")
    for folder, model in ((folders[0], "before"), (folders[-1], "after")):
        assert f"| {folder} " in listed
        assert f"\n| {model} " in shown
    page = Path("report/index.html").read_text()
    assert page.count('src="data:image/jpeg;base64,') == 3
    for place in ("home of nobody", "overrides of many kinds", "dangling link"):
        assert f"of {place}" in shown


def test_what_is_left_out_is_named(printed, monkeypatch, capsys):
    folder, other = run("a", "one"), run("b", "other")
    for damage, reason in (
        ("seed text", "seed=three: must"),
        ("seed of many digits", "digits"),
        ("steps fewer than none", "done=-5: must"),
    ):
        before = (folder / "config.yaml").read_text()
        DAMAGE[damage](folder)
        monkeypatch.setattr("sys.argv", ["command", "folders=[runs]"])
        start(runs)
        (line,) = capsys.readouterr().err.splitlines()
        assert str(folder) in line
        assert reason in line
        (folder / "config.yaml").write_text(before)
    DAMAGE["images many"](folder)
    left_out = f"left out: images of {folder}: backbone.images=321: must be"
    for command, *arguments in ((report, "runs=runs"), (compare, folder, other, "metrics=[]")):
        assert left_out in printed(command, *map(str, arguments))


BOX = {"word": 0, "bbox": [1, 2, 3, 4]}


def annotations(width=9, caption="a dog", **noun):
    image = {"id": 1, "file_name": "test/1.png", "width": width, "height": 9}
    entry = {"image_id": 1, "caption": caption, "nouns": [BOX | noun]}
    return json.dumps({"images": [image], "annotations": [entry]})


@pytest.mark.parametrize(
    "content",
    [
        annotations(width=0),
        annotations(caption=5),
        annotations(word=99),
        annotations(word=-3),
        annotations(word="x"),
        annotations(bbox=[int(DIGITS), 1, 1, 1]),
        annotations().replace('"word": 0', f'"word": {5000 * "9"}'),
        annotations().replace('"image_id": 1', '"image_id": 2'),
        10**5 * "[",
        "[]",
        "\ud83d".encode(errors="surrogatepass"),
    ],
)
def test_boxes_of_another_program_are_none(content, tmp_path):
    file = tmp_path / "captions_test.json"
    file.write_text(annotations())
    picture = tmp_path / "test" / "1.png"
    assert list(noun_boxes([picture])[picture]) == ["a"]
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert noun_boxes([picture]) == {}
    reader = ShapesReader(tmp_path, train=1, val=1, test=1, size=32)
    reader()
    (reader.writes_to / file.name).write_bytes(file.read_bytes())
    with pytest.raises(CaptioningError, match=file.name):
        reader()
