"""The exported program gives the captions of the checkpoint, without PyTorch."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from json_files import changed_json, parsed
from PIL import Image
from support import QUIET, called

import captioning
from captioning.backbones.images import ImageTransform
from captioning.config.registry import CONF
from captioning.decoding.ranking import NORMALISATIONS
from captioning.files import FORMATS
from captioning.runs.checkpoints.checkpoint import load_checkpoint, write_safetensors
from experiments.onnx import runner
from experiments.onnx.export import main
from experiments.onnx.graphs import PREPROCESSING, search_of

pytestmark = QUIET


@pytest.fixture(scope="module")
def folder(shapes_run, once):
    def export(folder):
        settings = [f"checkpoint={shapes_run.checkpoint}", f"output={folder / 'best.onnx'}"]
        called(main, *settings, f"hydra.searchpath=['file://{CONF}']")
        return folder / "best.onnx"

    return once("exported", export)


def program(folder):
    spec = importlib.util.spec_from_file_location("beside", folder / "run.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "beside", module)
        patch.syspath_prepend(folder)
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def beside(folder):
    return program(folder)


FILTERS = [
    {"min_length": 7, "no_word_twice": True},
    {"no_repeat_ngram": 2, "forbidden": ["red", "square"]},
    {"prefix": ["there", "is"], "no_bad_ending": True, "no_repeat_ngram": 1},
    {"required": ["blue", "square"]},
]


@pytest.mark.parametrize(
    "search",
    [
        {},
        {"width": 1},
        {"_target_": "captioning.decoding.greedy"},
        {"width": 5, "n_best": 4, "length_penalty": 0.7},
        *({"width": 4, "n_best": 2, "normalisation": name} for name in NORMALISATIONS),
        {"width": 4, "n_best": 2, "early_stopping": True},
        {"max_length": 3, "n_best": 3},
        {"max_length": 4, "n_best": 3, "filters": {"no_bad_ending": True}},
        *({"filters": each, "n_best": 2} for each in FILTERS),
    ],
    ids=str,
)
def test_captions_are_the_checkpoints(search, shapes_run, folder, beside):
    theirs = captioning.load(shapes_run.checkpoint, "cpu", search)
    stored = json.loads(json.dumps(search_of(theirs.config["decoding"], theirs)))
    captioner = beside.OnnxCaptioner(folder, threads=1, **stored)
    for photograph, expected in zip(
        shapes_run.photographs, theirs.caption(shapes_run.photographs), strict=True
    ):
        found = captioner.caption(photograph)
        every = (expected, *expected.alternatives)
        assert [each.text for each in found] == [each.caption for each in every]
        assert [each.score for each in found] == pytest.approx(
            [each.score for each in every], abs=1e-4
        )
        np.testing.assert_allclose(found[0].attention, expected.decoded.attention, atol=1e-4)


@pytest.mark.parametrize(
    "setting",
    [
        *({"normalisation": "lenght"}, {"lenght_penalty": -9}, {"length_penalty": float("nan")}),
        *({"width": 0}, {"width": 3.0}, {"n_best": 4}, {"max_length": 99}, {"no_word_twice": 1}),
        *({"prefix": "there"}, {"forbidden": [["red"]]}, {"no_repeat_ngram": -1}),
    ],
    ids=str,
)
def test_settings_that_the_search_cannot_have_are_refused(setting, folder, beside):
    with pytest.raises(ValueError, match=rf"\b{next(iter(setting))}\b"):
        beside.OnnxCaptioner(folder, **setting)


@pytest.mark.parametrize("setting", ["prefix", "required"])
def test_a_word_that_must_come_is_known(setting, folder, beside):
    with pytest.raises(ValueError, match="zebra"):
        beside.OnnxCaptioner(folder, **{setting: ["zebra"]})


def test_another_language_is_written_as_by_the_checkpoint(shapes_run, folder, tmp_path, beside):
    saved = load_checkpoint(shapes_run.checkpoint)
    words = [chr(0x4E00 + number) for number in range(len(saved.words))]
    saved.config["data"] |= {"language": "zh", "tokens": "characters"}
    write_safetensors(tmp_path / "zh.safetensors", saved.config, words, saved.networks)
    chinese = captioning.load(tmp_path / "zh.safetensors", "cpu")
    (theirs,) = chinese.caption(shapes_run.photographs[0])
    same_weights = shutil.copytree(folder, tmp_path / "zh.onnx")
    with changed_json(same_weights / "captioner.json") as about:
        about["vocabulary"][-len(words) :] = words
        about["no_space_pattern"] = chinese.vocabulary.language.no_space_pattern
    (ours,) = beside.OnnxCaptioner(same_weights, threads=1).caption(shapes_run.photographs[0])
    assert ours.text == theirs.caption
    assert " " not in ours.text


def test_no_path_of_this_machine_travels(folder):
    graphs = b"".join(file.read_bytes() for file in folder.glob("*.onnx"))
    assert graphs
    assert b"captioning/" not in graphs
    assert b"experiments/" not in graphs
    assert str(Path.home()).encode() not in graphs


def test_lines_are_those_of_predict(shapes_run, folder, tmp_path, capsys):
    folder = shutil.copytree(folder, tmp_path / "changed.onnx")
    beside = program(folder)
    photographs = shapes_run.photographs[:2]
    assert beside.main([*map(str, photographs), "--width", "1", "--threads", "1"]) == 0
    lines = parsed(capsys.readouterr().out)
    theirs = captioning.load(shapes_run.checkpoint, "cpu", {"width": 1}).caption(photographs)
    for line, path, expected in zip(lines, photographs, theirs, strict=True):
        assert (line["image"], line["caption"]) == (str(path), expected.caption)
        assert line["score"] == pytest.approx(expected.score, abs=2e-4)
        assert line["confidence"] is None  # of another search

    own = [*map(str, shapes_run.photographs), "--n-best", "2", "--threads", "1"]
    low, high = min(line["score"] for line in lines) - 1, 0.0
    quantiles = [low + (high - low) * percent / 100 for percent in range(101)]
    with changed_json(folder / "captioner.json") as about:
        about["quantiles"] = quantiles
    assert beside.main(own) == 0
    for line in parsed(capsys.readouterr().out):
        assert line["confidence"] == pytest.approx((line["score"] - low) / (high - low), abs=0.02)
    assert beside.main(["nowhere.png", "--threads", "1"]) == 1
    assert (
        "error: cannot read the image 'nowhere.png': FileNotFoundError" in capsys.readouterr().err
    )
    with pytest.raises(SystemExit):
        beside.main(["nowhere.png", "--n-best", "9"])


@pytest.mark.parametrize(
    "given, key",
    [
        (["checkpoint=pretrained"], "output=pretrained.onnx"),  # in the current directory
        (["output=pretrained.onnx"], "output=pretrained.onnx"),
        (["output=graphs", "decoding=sample"], "captioning.decoding.sample"),
        (["output=graphs", "half=true"], "half"),
    ],
    ids=str,
)
def test_what_is_refused_leaves_everything_as_it_was(refused, given, key, shapes_run, elsewhere):
    Path("pretrained.onnx").write_text("mine")
    checkpoint = f"checkpoint={shapes_run.checkpoint}"
    settings = given if given[0].startswith("checkpoint") else [checkpoint, *given]
    assert key in refused(main, "--config-dir", str(CONF), *settings)
    assert [path.name for path in Path().rglob("*")] == ["pretrained.onnx"]
    assert Path("pretrained.onnx").read_text() == "mine"


@pytest.mark.parametrize("resize", ["stretch", "crop", "pad"])
def test_pixels_are_the_backbones(resize, tmp_path):
    """Of a large file that is turned, which both decode at a lower resolution."""
    transform = ImageTransform(31, resize=resize, interpolation="bicubic", pixel_range=(99, 40_000))
    ours = runner.OnnxCaptioner.__new__(runner.OnnxCaptioner)
    ours.preprocessing = {name: getattr(transform, name) for name in PREPROCESSING}
    ours.preprocessing["formats"] = FORMATS
    numbers, exif = np.random.default_rng(0), Image.Exif()
    exif[0x0112] = 6
    pixels = numbers.integers(0, 256, (300, 400, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file := tmp_path / "turned.jpg", exif=exif)
    assert np.array_equal(ours.read(file), transform.read(file).numpy())
