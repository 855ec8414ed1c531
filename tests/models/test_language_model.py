"""Language models of `transformers` as decoders: against the library's own decoding.

The weights are random; the classes are the library's.
"""

from functools import partial

import pytest
import torch
from models.captioners import GRID, D, L
from models.tensors import close, normal
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from captioning.backbones.context import ContextSet
from captioning.decoding import beam_search, greedy
from captioning.models.language_model import LanguageModel
from captioning.models.parts.encoders import Pooled
from captioning.tokens import BOS, EOS, PAD

PIECES, LONGEST = 19, 9
OF_LLAMA = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
SMALL = {
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "bos_token_id": 19}
    | {"eos_token_id": 19, "vocab_size": 20},  # one token for both, the last, and no padding
    "opt": {"hidden_size": 16, "word_embed_proj_dim": 12, "ffn_dim": 24, "num_hidden_layers": 2}
    | {"num_attention_heads": 4, "max_position_embeddings": 64, "vocab_size": 22}
    | {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    "llama": OF_LLAMA | {"bos_token_id": 1, "eos_token_id": 2, "vocab_size": 21},
    "mistral": OF_LLAMA | {"bos_token_id": 1, "eos_token_id": [2, 3], "vocab_size": 21},
    "qwen2": OF_LLAMA | {"bos_token_id": None, "eos_token_id": 19, "vocab_size": 20},
    "qwen3": OF_LLAMA | {"bos_token_id": None, "eos_token_id": 19, "vocab_size": 20, "head_dim": 8},
    "gpt_neox": {**OF_LLAMA, "bos_token_id": 0, "eos_token_id": 0, "vocab_size": 20},
}


def saved(family, folder, **more):
    """A model of the library with random weights, large enough for captions that differ."""
    torch.manual_seed(3)
    config = AutoConfig.for_model(family, **SMALL[family], **more)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    end = torch.tensor(config.eos_token_id).flatten()[0]
    model.get_output_embeddings().weight.data[end] *= 8  # or hardly a caption would end
    model.eval().save_pretrained(folder)
    return model


def loaded(family, folder, conditioning="prefix"):
    """Our model with the weights of a folder, and the library's; all of its tokens are ours."""
    library = saved(family, folder, add_cross_attention=conditioning == "cross")
    known = library.config
    ends = known.eos_token_id if isinstance(known.eos_token_id, list) else [known.eos_token_id]
    special = {known.pad_token_id, known.bos_token_id, ends[0]}
    ids = [i for i in range(known.vocab_size) if i not in special]
    architecture = {"model_type": family, **SMALL[family]}
    settings = {"path": str(folder), "conditioning": conditioning, "max_tokens": LONGEST}
    ours = LanguageModel(4 + len(ids), D, GRID, architecture=architecture, **settings).eval()
    ours.load(ids)
    nn.init.normal_(ours.project.weight, std=0.4)
    library.base_model.load_state_dict(ours.decoder.state_dict(), strict=False)  # the image's
    return ours, {
        "model": library,
        "ids": [known.pad_token_id, known.bos_token_id, ends[0], None, *ids],
    }


def generated(library, ours, context, **search):
    """The captions of the library's own decoding, in our ids, and its scores."""
    model, ids = library["model"], library["ids"]
    begin = torch.full((len(context.vectors), 1), ids[BOS] if ids[BOS] is not None else ids[EOS])
    image = ours.project(context.vectors)
    if ours.cross:
        given = {"input_ids": begin, "encoder_hidden_states": image}
    else:
        embedded = model.get_input_embeddings()(begin)
        given = {"inputs_embeds": torch.cat((image, embedded), dim=1)}
        given["attention_mask"] = torch.ones(given["inputs_embeds"].shape[:2])
    never = [i for i in (ids[PAD], ids[BOS]) if i not in (None, ids[EOS])]
    out = model.generate(
        **given,
        max_new_tokens=LONGEST,
        do_sample=False,
        eos_token_id=ids[EOS],
        pad_token_id=ids[EOS] if ids[PAD] is None else ids[PAD],
        suppress_tokens=never or None,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        **search,
    )
    captions = []
    for row in out.sequences[:, begin.shape[1] * ours.cross :].tolist():
        row = row[: row.index(ids[EOS]) + 1] if ids[EOS] in row else row
        captions.append([EOS if i == ids[EOS] else ids.index(i) for i in row])
    return captions, out


@pytest.mark.parametrize(
    "family, conditioning", [*((family, "prefix") for family in SMALL), ("gpt2", "cross")]
)
@torch.no_grad()
def test_decoding_is_that_of_the_library(family, conditioning, tmp_path):
    ours, library = loaded(family, tmp_path, conditioning)
    context = ContextSet(normal(6, L, D).float(), GRID)
    captions, out = generated(library, ours, context)
    log_probs = torch.stack(out.logits, dim=1).log_softmax(dim=-1)
    found = greedy(ours, context, LONGEST)
    assert [caption.tokens for caption in found] == captions
    assert len({caption.score for caption in found}) == len(found)  # the image counts
    for row, caption in enumerate(found):
        ids = [library["ids"][token] for token in caption.tokens]
        expected = log_probs[row, range(len(ids)), ids].sum().item()
        assert caption.score == pytest.approx(expected, abs=1e-5)
    for width, penalty in ((3, 1.0), (4, 0.0)):
        search = {"num_beams": width, "length_penalty": penalty, "early_stopping": "never"}
        captions, out = generated(library, ours, context, num_return_sequences=width, **search)
        found = beam_search(ours, context, width, LONGEST, penalty, n_best=width)
        every = [each for best in found for each in (best, *best.alternatives)]
        assert [caption.tokens for caption in every] == captions
        assert any(EOS in tokens for tokens in captions)
        scores = torch.tensor([caption.score for caption in every])
        close(scores, out.sequences_scores, 1e-5)


@torch.no_grad()
def test_the_last_vector_of_the_image_in_place_of_the_first_token(tmp_path):
    library, architecture = saved("gpt2", tmp_path), {"model_type": "gpt2", **SMALL["gpt2"]}
    encoder = partial(Pooled, d_model=16, prefix=4)
    model = LanguageModel(20, D, GRID, architecture=architecture, encoder=encoder, begin="image")
    model.eval().decoder.load_state_dict(library.base_model.state_dict(), strict=False)
    context = ContextSet(normal(2, L, D).float(), GRID)
    tokens = torch.randint(4, 20, (2, 3, 5))
    tokens[..., 0] = BOS
    image = model.project(model.encoder(context).vectors).repeat_interleave(3, dim=0)
    vectors = torch.cat((image, model.embed(tokens[..., 1:]).flatten(0, 1)), dim=1)
    expected = library.base_model(inputs_embeds=vectors).last_hidden_state
    close(model(context, tokens).hidden.flatten(0, 1), expected[:, 3:], 1e-5)


def test_images_without_a_vector_that_begins_are_refused():
    architecture, one = {"model_type": "gpt2", **SMALL["gpt2"]}, partial(Pooled, prefix=1)
    for settings in ({}, {"encoder": one, "conditioning": "cross"}):
        with pytest.raises(ValueError, match="begin=image needs conditioning=prefix"):
            LanguageModel(9, D, GRID, architecture=architecture, begin="image", **settings)
    model = LanguageModel(9, D, GRID, architecture=architecture, begin="image", encoder=one)
    with pytest.raises(ValueError, match="begin=image needs more than one"):
        model.start(ContextSet(normal(2, L, D).float(), GRID), 1)


def test_adapters_add_their_product_once_and_a_frozen_decoder_drops_nothing(tmp_path):
    architecture = {"model_type": "opt", **SMALL["opt"]}
    settings = {"lora": 3, "freeze": True, "dropout": 0.5, "max_tokens": LONGEST}
    torch.manual_seed(0)
    model = LanguageModel(9, D, GRID, architecture=architecture, **settings).train()
    layer = model.decoder.get_submodule("decoder.layers.0.fc1")
    down, up = (each["default"].weight for each in (layer.lora_A, layer.lora_B))
    nn.init.normal_(up)
    x = normal(2, 16).float()
    close(layer(x), layer.base_layer(x) + x @ down.T @ up.T, 1e-5)
    context, tokens = ContextSet(normal(1, L, D).float(), GRID), torch.full((1, 2, 3), BOS)
    found = model(context, tokens).hidden
    close(found[:, 0], found[:, 1], 1e-6)  # rows of a batch may differ in their last bit
    close(model(context, tokens).hidden, found, 1e-6)


def test_models_that_cannot_read_the_captions_are_refused_before_training(tmp_path):
    architecture = {"model_type": "gpt2", **SMALL["gpt2"]}
    with pytest.raises(ValueError, match=rf"^{L + 54} vectors and tokens exceed the 64 positions"):
        LanguageModel(9, D, GRID, architecture=architecture, max_tokens=54)
    ours = LanguageModel(9, D, GRID, architecture=architecture, path=str(tmp_path))
    model = saved("gpt2", tmp_path)
    with pytest.raises(ValueError, match="ids up to 20, and the model 20 tokens"):
        ours.load([0, 1, 2, 3, 20])
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="no eos_token_id"):
        ours.load([0, 1, 2, 3, 4])
