"""What libraries load of folders: no code, nothing from elsewhere, and no more than the weights.

Every folder here is one that somebody else has made.
"""

import json
import logging
import re
import shutil

import huggingface_hub.constants
import open_clip
import pytest
import torch
from clip_folders import clip
from hub import REPOSITORY, Hub, serving
from json_files import changed_json, read_json, write_json
from library_folders import bert
from refusals import refuses
from safetensors.torch import load_file, save_file
from support import little_memory
from tokenizers import Tokenizer, normalizers, processors

from captioning.errors import CaptioningError
from captioning.models.language_model import LanguageModel
from captioning.pretrained.loading import load, load_model
from experiments.bertscore.metric import LAYER, MODEL, BertScore
from experiments.clip_scores.embed import check_network, embed

TEXTS = {"captions": ["a dog"]}
CODE = """
from pathlib import Path
from transformers import BertModel as M, BertConfig as C, PreTrainedTokenizerFast as T
Path({witness!r}).touch()
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folders")
    for make in (clip, bert):
        make(folder / make.__name__)
    return folder


@pytest.fixture
def theirs(folders, tmp_path):
    """Copies, in which files may be changed."""
    return shutil.copytree(folders, tmp_path / "theirs")


def embedded(folder):
    return embed(folder / "clip", [], TEXTS)


def scored(folder):
    return bert_score(folder / "bert").compute([["a dog"]], [["a man"]])


def bert_score(model):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MODEL, str(model))
        patch.setenv(LAYER, "1")
        return BertScore()


def has_code(folder):
    """Bring a module of the author's along, which writes a file if it is imported."""
    witness = folder / "RAN"
    (folder / "evil.py").write_text(CODE.format(witness=str(witness)))
    return witness


@pytest.mark.parametrize(
    "settings",
    [
        {"hf_tokenizer_name": "x", "tokenizer_kwargs": {"trust_remote_code": True}},
        {"hf_tokenizer_name": "x"},
        {"hf_model_name": "x"},
    ],
)
def test_code_beside_a_network_of_clip_does_not_run(settings, theirs):
    folder = theirs / "clip"
    witness = has_code(folder)
    modules = {"AutoTokenizer": ["evil.T", "evil.T"]}
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "T", "auto_map": modules})
    with changed_json(folder / "open_clip_config.json") as config:
        config["model_cfg"]["text_cfg"] |= settings
    with refuses("run code of its author"):
        embedded(theirs)
    assert not witness.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"model_cfg": {"vision_cfg": {"timm_model_name": "hf-hub:somebody/x"}}},
        {"model_cfg": {"multimodal_cfg": {}}},
        {"preprocess_cfg": {"size": {"unknown": 1}}},
    ],
)
def test_a_network_of_clip_names_no_other(change, theirs):
    with changed_json(theirs / "clip" / "open_clip_config.json") as config:
        for part, settings in change.items():
            config[part] |= settings
    with refuses("load something else"):
        embedded(theirs)


def test_networks_that_open_clip_publishes_have_known_settings(tmp_path):
    """But for those of timm and of `transformers`, and those that write captions."""
    file = tmp_path / "open_clip_config.json"
    plain = 0
    for name in open_clip.list_models():
        text = json.dumps(open_clip.get_model_config(name))
        file.write_text(text)
        if not re.search("hf_|timm_|multimodal_cfg", text):
            check_network("it", file, [[49408]])
            plain += 1
    assert plain > 40


def test_weights_of_clip_are_there_and_are_no_pickles(theirs):
    folder = theirs / "clip"
    weights = folder / "open_clip_model.safetensors"
    torch.save(load_file(weights), folder / "open_clip_pytorch_model.bin")
    weights.unlink()
    with refuses("has no open_clip_model.safetensors"):
        embedded(theirs)
    save_file({"other": torch.ones(2)}, weights)
    with refuses("cannot be loaded"):
        embedded(theirs)


VISION = [
    {"image_size": 10**5},
    {"image_size": 1024},
    {"image_size": 64},  # open_clip would make positions from those of 32 pixels
    {"layers": 10**6},
    {"layers": 2000},
    {"layers": [10**6, 1, 1, 1]},
    {"width": 2**20},
    {"attentional_pool": True, "attn_pooler_queries": 2**24},
]
TEXT = [{"vocab_size": 2**24}, {"context_length": 10**5}, {"layers": 10**6}, {"mlp_ratio": 1e9}]


def test_sizes_of_clip_far_above_those_of_the_weights(folders, theirs):
    embedded(folders)  # what is imported is no part of the limit
    file = theirs / "clip" / "open_clip_config.json"
    before = file.read_text()
    with little_memory():
        for part, changes in (("vision_cfg", VISION), ("text_cfg", TEXT)):
            for change in changes:
                with changed_json(file) as config:
                    config["model_cfg"][part] |= change
                with refuses("far more than|more positions"):
                    embedded(theirs)
                file.write_text(before)


def test_open_clip_says_nothing_in_the_log_of_a_command(folders, caplog):
    with caplog.at_level(logging.INFO):
        embedded(folders)
    assert caplog.records == []


def written(folder, name, change):
    with changed_json(folder / "bert" / name) as content:
        content |= change


CODED = {
    "auto_map": {"AutoModel": "evil.M", "AutoConfig": "evil.C", "AutoTokenizer": ["evil.T"] * 2}
}
FOREIGN = {
    "config.json": [
        CODED,
        {"label2id": {"deep": [{"trust_remote_code": False}]}},
        {"quantization_config": {"quant_method": "hqq"}},
        {"_attn_implementation": "somebody/kernel"},
        {"model_type": "timm_wrapper", "architecture": "hf-hub:somebody/x"},
    ],
    "tokenizer_config.json": [CODED, {"init_inputs": ["x"]}, {"gguf_file": "/x.gguf"}],
    "generation_config.json": [CODED],
    "special_tokens_map.json": [CODED],
    "chat_template.json": [CODED],
    "adapter_config.json": [{"base_model_name_or_path": "somebody/x"}],
}


@pytest.mark.parametrize("file", FOREIGN)
def test_folders_of_transformers_run_no_code_and_name_nothing_else(file, theirs):
    folder = theirs / "bert"
    witness = has_code(folder)
    path = folder / file
    before = path.read_text() if path.exists() else "{}"
    for change in FOREIGN[file]:
        path.write_text(before)
        with changed_json(path) as content:
            content |= change
        path.write_text(path.read_text().replace("auto_map", "auto\\u005fmap"))
        with refuses("run code"):
            scored(theirs)
    assert not witness.exists()


def test_weights_of_transformers_are_all_there_and_are_no_pickles(theirs):
    folder = theirs / "bert"
    weights = folder / "model.safetensors"
    state = load_file(weights)
    index = folder / "model.safetensors.index.json"
    weights.unlink()
    save_file({f"x.{name}": state[name] for name in state}, weights)
    with refuses("lacks the weights"):
        scored(theirs)
    for name in ("../else.safetensors", "/tmp/else.bin"):
        write_json(index, {"metadata": {}, "weight_map": dict.fromkeys(state, name)})
        with refuses("of another folder"):
            scored(theirs)
    weights.unlink()
    torch.save(state, folder / "pytorch_model.bin")
    with refuses("no weights as"):
        scored(theirs)


def test_layers_behind_the_features_may_be_absent(folders, theirs):
    file = theirs / "bert" / "model.safetensors"
    state = load_file(file)
    save_file({name: state[name] for name in state if "pooler" not in name}, file)
    assert scored(theirs).per_image == scored(folders).per_image


def test_settings_that_are_large_or_deep(theirs):
    file = theirs / "bert" / "tokenizer_config.json"
    for text in ("[" * 10**5, f'{{"x": [{"[]," * 2**21}[]]}}', "{"):
        file.write_text(text)
        with little_memory(), pytest.raises((CaptioningError, OSError), match=r"damaged|bytes"):
            scored(theirs)


def test_a_header_of_many_tensors(theirs):
    file = theirs / "bert" / "model.safetensors"
    with file.open("wb") as weights:
        weights.write((2**26).to_bytes(8, "little"))
        weights.truncate(2**26 + 8)
    with refuses("a header of more than"):
        scored(theirs)


BERT = [{"vocab_size": 2**24}, {"num_hidden_layers": 10**6}, {"max_position_embeddings": 2**24}]
BERT += [{"hidden_size": 2**22}, {"num_labels": 10**9}]


def test_sizes_of_bert_far_above_those_of_the_weights(folders, theirs):
    scored(folders)
    file = theirs / "bert" / "config.json"
    before = file.read_text()
    with little_memory():
        for change in BERT:
            written(theirs, "config.json", change)
            with refuses("far more than"):
                scored(theirs)
            file.write_text(before)


def test_a_language_model_of_a_checkpoint_has_labels_as_its_weights_do():
    architecture = {"model_type": "gpt2", "num_labels": 10**9}
    with little_memory(), refuses("num_labels"):
        LanguageModel(9, 4, (1, 1), architecture=architecture)


@pytest.mark.parametrize("steps", ["normalizer", "post_processor", "decoder"])
def test_tokenizers_of_folders_are_tried(steps, theirs):
    many = normalizers.Sequence([normalizers.Replace("q", "r")] * 40)
    template = processors.TemplateProcessing("$A $A [CLS]", special_tokens=[("[CLS]", 2)])
    hostile = {"normalizer": many, "post_processor": processors.Sequence([template] * 4)}
    file = theirs / "bert" / "tokenizer.json"
    content = read_json(file)
    if steps in hostile:
        made = Tokenizer.from_file(str(file))
        setattr(made, steps, hostile[steps])
        content = json.loads(made.to_str())
    else:
        replace = {"type": "Replace", "pattern": {"String": "q"}, "content": "r"}
        content["decoder"] = {"type": "Sequence", "decoders": [replace] * 40}
    write_json(file, content)
    with refuses("steps|no tokenizer"):
        scored(theirs)


def test_a_tokenizer_of_a_folder_neither_pads_nor_reads_other_files(folders, theirs):
    folder, expected = theirs / "bert", scored(folders)
    made = Tokenizer.from_file(str(folder / "tokenizer.json"))
    made.enable_padding(length=10**8)
    made.save(str(folder / "tokenizer.json"))
    bomb = folder / "tokenizer.0.1.json"
    many = normalizers.Sequence([normalizers.Replace("a", "aaaa")] * 40)
    made.normalizer = many
    made.save(str(bomb))
    files = {"fast_tokenizer_files": [bomb.name], "tokenizer_file": str(bomb)}
    written(theirs, "tokenizer_config.json", files)
    with little_memory():
        assert scored(theirs).per_image == expected.per_image


def test_what_is_loaded_is_what_the_library_loads(folders):
    folder, text = folders / "bert", "a dog plays with the ball"
    state = load_file(folder / "model.safetensors")
    model = load_model("AutoModel", "model.path", folder).state_dict()
    assert all(torch.equal(model[name], state[name]) for name in state)
    expected = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
    tokens = load("AutoTokenizer", "model.path", folder)
    assert tokens(text)["input_ids"] == expected


def test_settings_of_a_tokenizer_are_kept(theirs):
    names = ["input_ids", "attention_mask"]
    written(theirs, "tokenizer_config.json", {"model_input_names": names, "pad_token": "dog"})
    tokens = load("AutoTokenizer", "model.path", theirs / "bert")
    assert [*tokens("a man")] == names
    assert tokens.pad_token_id == tokens.convert_tokens_to_ids("dog") == 5


def test_a_model_of_the_hub_is_read_as_a_folder_is(folders, elsewhere, monkeypatch):
    files = {file.name: file.read_bytes() for file in (folders / "bert").iterdir()}
    named = bert_score(REPOSITORY)
    with serving(Hub(files | {"pytorch_model.bin": b"x"}), monkeypatch) as hub:
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(elsewhere / "one"))
        assert named.compute([["a dog"]], [["a man"]]).per_image == scored(folders).per_image
        assert not [*elsewhere.rglob("*.bin")]
        hub.files["generation_config.json"] = json.dumps(CODED).encode()
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(elsewhere / "other"))
        with refuses("auto_map"):
            bert_score(REPOSITORY).compute([["a dog"]], [["a man"]])
