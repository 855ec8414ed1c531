"""A run with a language model of `transformers` from a folder, and the checkpoint without it."""

import shutil
from itertools import pairwise

import pytest
import torch
from json_files import changed_json
from PIL import Image
from refusals import refuses
from support import QUIET, checked, composed, little_memory, small_run
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM

import captioning
from captioning.config.explain import explain
from captioning.runs.checkpoints.checkpoint import load_checkpoint

pytestmark = QUIET
# of captions of drawn scenes; some are unknown
WORDS = [
    *("<unk>", "<|endoftext|>", "a", "large", "small", "red", "green", "blue", "orange", "square"),
    *("circle", "is", "there", "at", "the", "top", "bottom", "left", "right", "of", "in", "center"),
    *("and", "one", "with", "to", "below", "above", "cross", "triangle", "yellow", "purple"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random GPT-2 with a tokenizer of words."""
    folder = tmp_path_factory.mktemp("model")
    ids = {word: i for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 128}
    ends = {"vocab_size": len(WORDS), "bos_token_id": 1, "eos_token_id": 1}
    torch.manual_seed(7)
    AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt2", **sizes, **ends)).save_pretrained(
        folder
    )
    return folder


@pytest.mark.parametrize("conditioning", ["prefix", "cross"])
def test_run_and_caption_without_the_folder(conditioning, folder, elsewhere):
    copy = shutil.copytree(folder, elsewhere / "model")
    overrides = [f"model.path={copy}", f"data.vocabulary.subwords={copy}", "model.freeze=true"]
    chosen = "model=language_model", f"model.conditioning={conditioning}"
    assert small_run(*chosen, *overrides) is not None
    shutil.rmtree(copy)
    (checkpoint,) = (elsewhere / "runs").glob("*/checkpoints/best.ckpt")
    state = load_checkpoint(checkpoint).state  # frozen: as in the folder
    source = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    layer = "h.0.mlp.c_fc.weight"
    assert torch.equal(state[f"model.decoder.{layer}"], source[f"transformer.{layer}"])
    assert torch.equal(state["model.embed.weight"][4:], source["transformer.wte.weight"][2:])
    assert torch.equal(state["model.embed.weight"][1], source["transformer.wte.weight"][1])
    captioner = captioning.load(checkpoint)
    (prediction,) = captioner.caption(Image.new("RGB", (50, 40), "red"))
    assert set(prediction.words) <= set(WORDS)
    assert len(prediction.attention) == len(prediction.words)


def test_adapters_then_self_critical_training_and_an_ensemble(folder, elsewhere):
    model = ["model=language_model", f"model.path={folder}", f"data.vocabulary.subwords={folder}"]
    adapted = [*model, "model.freeze=true", "model.lora=2", "optimizer.lr=0.1"]
    small_run(*adapted, "name=adapted")
    (first,) = (elsewhere / "runs").glob("adapted-*/checkpoints/best.ckpt")
    second = [*adapted, "objective=self_critical", f"init_from={first}", "name=rewarded"]
    small_run(*second)
    (last,) = (elsewhere / "runs").glob("rewarded-*/checkpoints/best.ckpt")
    before, after = load_checkpoint(first).state, load_checkpoint(last).state
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name for name in changed if "decoder" in name and "lora_" not in name} == set()
    assert any("lora_" in name for name in changed)
    source = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    frozen = after["model.decoder.h.0.mlp.c_fc.base_layer.weight"]
    assert torch.equal(frozen, source["transformer.h.0.mlp.c_fc.weight"])
    filters = {"prefix": ["a"], "no_word_twice": True}
    both = {"ensemble": [first, last], "width": 2, "n_best": 2, "filters": filters}
    (prediction,) = captioning.load(decoding=both).caption(Image.new("RGB", (50, 40), "red"))
    for each in (prediction, *prediction.alternatives):
        assert each.words[0] == "a"
        assert not [1 for word, after in pairwise(each.words) if word == after]


def test_its_tokens_are_those_of_the_folder(folder):
    for name in ("nothing", str(folder / "nothing")):
        overrides = "model=language_model", f"model.path={name}", f"data.vocabulary.subwords={name}"
        with pytest.raises(Exception, match="no folder with") as refusal:
            checked(composed(*overrides))
        assert explain(refusal.value).startswith(f"model.path={name} is no folder")
    with refuses(r"add data\.vocabulary\.subwords="):
        checked(composed("model=language_model", f"model.path={folder}"))
    with refuses("pretrained_lr"):
        small_run("model=sat_soft", "optimizer.pretrained_lr=1e-5", "test=false")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"n_layer": 10**7}, "far more than its weights: n_layer"),
        ({"n_embd": 2**14}, "far more than the weights"),  # numbers of a layer are its square
        ({"n_positions": 2**24}, "far more than the weights"),
        ({"n_layer": 0}, "architecture has 0 layers"),
    ],
)
def test_sizes_far_above_those_of_the_weights(change, message, folder, elsewhere):
    copy = shutil.copytree(folder, elsewhere / "model")
    with changed_json(copy / "config.json") as config:
        config |= change
    given = ["model=language_model", f"model.path={copy}", f"data.vocabulary.subwords={copy}"]
    with little_memory(), pytest.raises(Exception) as refused:  # noqa: PT011, explained below
        small_run(*given)
    assert message in explain(refused.value)
