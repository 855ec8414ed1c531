"""ClipCap against its equations, with a random GPT-2 of the library.

B images, vectors of D features, P places of E features.
"""

import pytest
import torch
from convert.golden import captioner, log_probabilities
from models.tensors import close
from refusals import refuses
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM

from captioning.backbones.context import ContextSet
from captioning.convert.sources.clip_prefix import convert
from captioning.decoding import greedy

B, D, E, P, EXPAND, HEADS, LAYERS = 3, 6, 16, 4, 3, 8, 2
WORDS = ["<|endoftext|>", "a", ".", "dog", "man", "red", "ball", "runs", "on", "the", "grass"]
WORDS += ["plays", "with"]
GIVEN = ["a dog runs on the grass", "the man plays with a ball", "a red red red ball on"]
STOP = WORDS.index(".")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The settings and the tokenizer of a small GPT-2."""
    folder = tmp_path_factory.mktemp("gpt2")
    ids = {word: i for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<|endoftext|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    sizes = {"n_embd": E, "n_layer": 2, "n_head": 2, "n_positions": 128}
    ends = {"vocab_size": len(WORDS), "bos_token_id": 0, "eos_token_id": 0}
    AutoConfig.for_model("gpt2", **sizes, **ends).save_pretrained(folder)
    return folder


def perceptron():
    width = P * E
    return {
        "model.0.weight": torch.randn(width // 2, D),
        "model.0.bias": torch.randn(width // 2),
        "model.2.weight": torch.randn(width, width // 2) / 4,
        "model.2.bias": torch.randn(width),
    }


def mapped_by_perceptron(w, vectors):
    hidden = F.linear(vectors, w["model.0.weight"], w["model.0.bias"]).tanh()
    return F.linear(hidden, w["model.2.weight"], w["model.2.bias"]).view(B, P, E)


def attention():
    shapes = {"linear.weight": (EXPAND * E, D), "linear.bias": (EXPAND * E,)}
    shapes["prefix_const"] = (P, E)
    for i in range(LAYERS):
        for name, shape in {
            "norm1.weight": (E,),
            "norm1.bias": (E,),
            "attn.to_queries.weight": (E, E),
            "attn.to_keys_values.weight": (2 * E, E),
            "attn.project.weight": (E, E),
            "attn.project.bias": (E,),
            "norm2.weight": (E,),
            "norm2.bias": (E,),
            "mlp.fc1.weight": (2 * E, E),
            "mlp.fc1.bias": (2 * E,),
            "mlp.fc2.weight": (E, 2 * E),
            "mlp.fc2.bias": (E,),
        }.items():
            shapes[f"transformer.layers.{i}.{name}"] = shape
    return {name: torch.randn(shape) / 2 for name, shape in shapes.items()}


def mapped_by_attention(w, vectors):
    x = F.linear(vectors, w["linear.weight"], w["linear.bias"]).view(B, EXPAND, E)
    x = torch.cat((x, w["prefix_const"].expand(B, -1, -1)), dim=1)
    for i in range(LAYERS):

        def layer(name, x, layer=f"transformer.layers.{i}."):
            return F.linear(x, w[f"{layer}{name}.weight"], w.get(f"{layer}{name}.bias"))

        def norm(name, x, layer=f"transformer.layers.{i}."):
            return F.layer_norm(x, (E,), w[f"{layer}{name}.weight"], w[f"{layer}{name}.bias"])

        own = norm("norm1", x)
        maps = layer("attn.to_queries", own), *layer("attn.to_keys_values", own).chunk(2, dim=-1)
        heads = [each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in maps]
        x = x + layer(
            "attn.project", F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        )
        x = x + layer("mlp.fc2", layer("mlp.fc1", norm("norm2", x)).relu())
    return x[:, EXPAND:]


MAPPINGS = {
    "perceptron": (perceptron, mapped_by_perceptron),
    "attention": (attention, mapped_by_attention),
}


@pytest.fixture(scope="module", params=MAPPINGS)
def published(request, folder, tmp_path_factory):
    """A file as its training writes it, the language model, and the prefix of each image."""
    drawn, mapped = MAPPINGS[request.param]
    torch.manual_seed(6)
    config = AutoConfig.from_pretrained(folder)
    gpt = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for parameter in gpt.parameters():
        nn.init.normal_(parameter, std=0.4)
    gpt.transformer.wpe.weight.data *= 5  # or a word would follow itself
    weights, vectors = drawn(), torch.randn(B, D)
    saved = {f"clip_project.{name}": tensor for name, tensor in weights.items()}
    saved |= {f"gpt.{name}": tensor for name, tensor in gpt.state_dict().items()}
    saved["gpt.transformer.h.0.attn.bias"] = torch.ones(1, 1, 128, 128).tril().byte()
    saved["gpt.transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
    path = tmp_path_factory.mktemp("weights") / "coco_weights.pt"
    torch.save(saved, path)
    return path, gpt, vectors, mapped(weights, vectors)


@pytest.fixture(scope="module")
def loaded(published, folder, tmp_path_factory):
    converted = convert(published[0], folder)
    return captioner(converted, tmp_path_factory.mktemp("converted"))


def logits_after(gpt, prefix, ids):
    words = gpt.get_input_embeddings()(torch.tensor(ids, dtype=torch.long))
    return gpt(inputs_embeds=torch.cat((prefix, words))[None]).logits[0, P - 1 :]


@torch.no_grad()
def test_probabilities_of_given_captions(published, loaded):
    _, gpt, vectors, prefixes = published
    found = log_probabilities(loaded, ContextSet(vectors[:, None], (1, 1)), GIVEN)
    for row, prefix, caption in zip(found, prefixes, GIVEN, strict=True):
        ids = [WORDS.index(word) for word in caption.split()]
        expected = logits_after(gpt, prefix, ids).log_softmax(-1)
        close(row, expected[range(len(ids) + 1), [*ids, STOP]], 1e-4)


@torch.no_grad()
def test_captions_end_with_the_full_stop(published, loaded):
    _, gpt, vectors, prefixes = published
    captions = greedy(loaded.first.model, ContextSet(vectors[:, None], (1, 1)), 9)
    for caption, prefix in zip(captions, prefixes, strict=True):
        ids = []
        while len(ids) < 9 and STOP not in ids:
            best = logits_after(gpt, prefix, ids)[-1]
            best[0] = -torch.inf  # the end of text
            ids.append(int(best.argmax()))
        assert ids[-1] == STOP
        words = [WORDS[i] for i in ids if i != STOP]
        assert loaded.vocabulary.decode(caption.tokens).split() == words


def test_another_mapping_is_refused(published, folder, tmp_path):
    saved = torch.load(published[0], weights_only=True)
    saved["clip_project.weight"] = torch.zeros(1)
    torch.save(saved, path := tmp_path / "other.pt")
    with refuses(r"clip_project\.weight"):
        captioner(convert(path, folder), tmp_path / "converted")
    torch.save({"gpt.lm_head.weight": torch.zeros(1, 1)}, path)
    with refuses(r"embed\.weight"):
        convert(path, folder)
