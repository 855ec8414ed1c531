"""Captioners of `transformers` that were not trained here: real classes with random weights."""

import re
import shutil

import pytest
from json_files import changed_json, read_json
from library_folders import blip, git, llava, vit_gpt2
from pictures import noise
from PIL import Image
from refusals import refuses
from support import QUIET, captions_of, composed, little_memory
from transformers import (
    AutoImageProcessor,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
)

import captioning
from captioning import evaluate
from captioning.config.schemas.evaluate import EvaluateSettings, check_evaluation
from captioning.config.settings import check_settings
from captioning.errors import CaptioningError
from captioning.report.published import untrained_rows

pytestmark = QUIET
MODELS = {"blip": blip, "vit_gpt2": vit_gpt2, "git": git}
TEXTS = ["a man runs on the grass", "the red dog plays with a ball", "a dog runs"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The models, and six noisy images with captions."""
    folder = tmp_path_factory.mktemp("library")
    for name, make in {**MODELS, "llava": llava}.items():
        make(folder / name)
    rows = ["image,caption"]
    for i in range(6):
        noise(folder / "images" / f"{i}.png", (50, 40), i)
        rows.append(f"{i}.png,{TEXTS[i % 3]}")
    (folder / "references.csv").write_text("\n".join(rows))
    return folder


@pytest.mark.parametrize(
    "name, prompt", [*((name, None) for name in MODELS), ("blip", "a dog"), ("llava", "a dog")]
)
@pytest.mark.parametrize("width", [1, 3])
def test_captions_are_those_of_the_library(name, prompt, width, folders):
    folder, files = folders / name, sorted((folders / "images").iterdir())
    settings = {"width": width, "max_length": 6, "n_best": width, "prompt": prompt}
    predictions = captioning.load(f"transformers:{folder}", decoding=settings).caption(files)
    model = AutoModelForImageTextToText.from_pretrained(folder)
    texts = {} if prompt is None else {"text": f"<image> {prompt}" if name == "llava" else prompt}
    read = (AutoProcessor if texts else AutoImageProcessor).from_pretrained(folder)
    tokens = AutoTokenizer.from_pretrained(folder)
    for file, prediction in zip(files, predictions, strict=True):
        given = read(images=Image.open(file).convert("RGB"), return_tensors="pt", **texts)
        search = {"num_beams": width, "num_return_sequences": width, "max_new_tokens": 6}
        out = model.generate(**given, **search, return_dict_in_generate=True, output_scores=True)
        sentences = tokens.batch_decode(out.sequences, skip_special_tokens=True)
        every = [prediction, *prediction.alternatives]
        expected = [" ".join(text.replace(prompt or "", "", 1).split()) for text in sentences]
        assert [each.caption for each in every] == expected
        if width > 1:
            scores = pytest.approx(out.sequences_scores.tolist(), abs=1e-5)
            assert [each.score for each in every] == scores
    assert len({prediction.score for prediction in predictions}) == len(files)
    assert any(prediction.words for prediction in predictions)


def test_evaluated_beside_ours(folders, elsewhere, printed):
    checkpoint = f"checkpoint=transformers:{folders / 'blip'}"
    given = [f"images={folders / 'images'}", f"references={folders / 'references.csv'}"]
    search = ["decoding.width=1", "decoding.max_length=6", "decoding.prompt='a dog'"]
    printed(evaluate.main, checkpoint, *given, *search, "metrics=[BLEU]", "name=blip")
    record = read_json(elsewhere / "runs" / "blip" / "scores.json")
    assert record["scores"]["BLEU-1"] >= 0
    known = record["provenance"]
    assert known["decoding"]["prompt"] == "a dog"
    assert known["system"] == "BlipForConditionalGeneration of blip, not trained here"
    assert len(known["checkpoint"]["sha256"]) == 64
    ((digest, row),) = untrained_rows(elsewhere / "runs")  # in the report's tables
    assert (digest, row.source) == (known["data_digest"], "not trained here")
    assert row.system == "BlipForConditionalGeneration of blip"
    assert f"{known['checkpoint']['sha256']}, " in row.caveat
    assert "prompt=a dog" in row.caveat
    assert not {"ended", "word entropy"} & record["scores"].keys()  # which are not measured
    assert row.scores["BLEU-1"] == round(record["scores"]["BLEU-1"], 1)
    lines = captions_of(elsewhere / "runs" / "blip")
    assert [line["references"] for line in lines] == [[TEXTS[i % 3]] for i in range(6)]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"config.json": '{"model_type": "blip", "auto_map": {"AutoModel": "a.B"}}'}, "auto_map"),
        ({"processor_config.json": '{"auto_map": {"AutoProcessor": "a.B"}}'}, "auto_map"),
        ({"model.safetensors": None, "pytorch_model.bin": "x"}, "safetensors"),
        ({"config.json": None}, "no folder with"),
        ({"config.json": '{"model_type": "gpt2"}'}, "cannot be loaded"),
    ],
)
def test_folders_that_are_refused(change, message, folders, tmp_path):
    folder = shutil.copytree(folders / "blip", tmp_path / "blip")
    for name, text in change.items():
        if text is None:
            (folder / name).unlink()
        else:
            (folder / name).write_text(text)
    with refuses(message):
        captioning.load(f"transformers:{folder}")


VAST = 10**7
SIZES = [
    ("blip", "config.json", {"num_labels": 10**9}),
    ("git", "config.json", {"vocab_size": VAST}),
    ("git", "config.json", {"vocab_size": 10**12}),
    ("blip", "config.json", {"text_config": {"num_hidden_layers": VAST}}),
    ("blip", "config.json", {"vision_config": {"hidden_size": 2**20, "image_size": 32}}),
    ("vit_gpt2", "config.json", {"encoder": {"model_type": "vit", "image_size": 10**6}}),
    ("git", "preprocessor", {"size": {"shortest_edge": 10**6}}),
    ("git", "preprocessor", {"size": None}),
    ("git", "preprocessor", {"size": {"shortest_edge": 0}}),
    ("vit_gpt2", "preprocessor", {"size": {"height": 10**6, "width": 10**6}}),
    ("blip", "preprocessor", {"pad_size": {"height": 10**6, "width": 10**6}}),
]
"""Model, file and what is changed there."""


def test_sizes_far_above_those_of_the_weights(folders, tmp_path):
    """Each is refused before it takes memory, by a process that has little more."""
    captioning.load(f"transformers:{folders / 'git'}")  # what is imported is no part of the limit
    with little_memory():
        for i, (name, file, change) in enumerate(SIZES):
            folder = shutil.copytree(folders / name, tmp_path / str(i))
            path = folder / file
            if file == "preprocessor":
                path = next(folder.glob("*processor_config.json"))
            with changed_json(path) as content:
                of_images = file == "preprocessor"
                node = content.get("image_processor", content) if of_images else content
                node.update(change)
            with pytest.raises(CaptioningError) as refused:
                captioning.load(f"transformers:{folder}")
            assert re.search("far more than|exceeds|has no size", str(refused.value)), change


def test_settings_that_are_refused(folders):
    for name, decoding, message in (
        ("blip", {"groups": 2}, "decoding.groups"),
        ("blip", {"width": "3"}, "decoding.width"),
        ("vit_gpt2", {"prompt": "a"}, "takes no decoding.prompt"),
        ("llava", {}, "needs decoding.prompt"),
    ):
        with refuses(message):
            captioning.load(f"transformers:{folders / name}", decoding=decoding)
    captioner = captioning.load(f"transformers:{folders / 'git'}", decoding={"max_length": 99})
    with refuses("GitForCausalLM cannot generate captions"):
        captioner.caption(folders / "images" / "0.png")
    config = composed(f"checkpoint=transformers:{folders / 'blip'}", name="evaluate")
    with refuses("knows no data set"):
        check_evaluation(check_settings(EvaluateSettings, config))
