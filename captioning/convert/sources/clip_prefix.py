"""ClipCap of `rmokady/CLIP_prefix_caption`: a prefix made of CLIP's image vector, before GPT-2.

`weights` is a `coco_weights.pt` or another file of its training, with either mapping network, and
`vocabulary` a folder of the GPT-2 that it began from, of which `config.json` and `tokenizer.json`
are read. Images are `[1, D]` precomputed features, CLIP's image vectors as its data has them.

No token begins a caption: the image's last vector does. A caption ends with a full stop in place of
an end of text. Here this is EOS, which a caption does not show, and no word is a full stop. The end
of text, which its captions hardly contain, is UNK.

Its beam search ranks by means per token, as ours does by default; a caption that ends keeps a place
in the beam there, and here it does not.
"""

from pathlib import Path

import torch
from torch import Tensor

from captioning.convert.source import Converted, Rows, renamed, table
from captioning.convert.unpickle import read_pickle, tensors_of
from captioning.data.subwords import Subwords, read_tokenizer
from captioning.errors import naming, quoted
from captioning.pretrained.library import CONFIG, read_settings
from captioning.tokens import BOS, NAMES, PAD

REPOSITORY = "rmokady/CLIP_prefix_caption"
LICENCE = "mit"
PAPER = "Mokady et al., ClipCap: CLIP Prefix for Image Captioning, 2021"
PARTS = table("""
gpt.transformer.wte.      embed.
gpt.transformer.          decoder.
gpt.lm_head.              output.
clip_project.model.       encoder.map.
clip_project.linear.      encoder.project.
clip_project.prefix_const encoder.queries
clip_project.transformer. encoder.inner.
.attn.to_queries.         .attention.project.linear.
.attn.to_keys_values.     .attention.project.linear.
.attn.project.            .attention.output.
.norm1.                   .attention.norm.
.norm2.                   .feed_forward.norm.
.mlp.fc1.                 .feed_forward.layers.0.
.mlp.fc2.                 .feed_forward.layers.2.
""")
"""Parts of its names, and what they are here."""
MASKS = r"\.attn\.(masked_)?bias$"
"""Buffers that old versions of the library saved."""


def convert(weights: Path, vocabulary: Path) -> Converted:
    """The captioner of a checkpoint, for precomputed features."""
    text = read_tokenizer(str(vocabulary))
    config = read_settings(f"vocabulary={quoted(vocabulary)}", vocabulary / CONFIG)
    with naming(f"{quoted(weights)} is not as {REPOSITORY} writes it"):
        state = renamed(tensors_of(read_pickle(weights), "it"), PARTS, MASKS)
        width, places = state["embed.weight"].shape[1], len(state["decoder.wpe.weight"])
        layers = sum(name.endswith(".ln_1.bias") for name in state)
        tied = torch.equal(state["embed.weight"], state["output.weight"])
        settings = [
            "model=language_model",
            f"model.architecture={{model_type:gpt2,n_embd:{width},n_layer:{layers},"
            f"n_head:{config['n_head']:d},n_positions:{places},tie_word_embeddings:{tied}}}",
            "model.begin=image",
            "model.max_tokens=67",
            *_mapping(state, width),
            f"model.encoder.d_model={width}",
            "backbone=features",
            "backbone.path=clip",
            "backbone.regions=1",
            "decoding=beam",
            "decoding.width=5",
            "decoding.max_length=67",
        ]
        _take_rows(state, Subwords(text), config["eos_token_id"])
    state["project.weight"], state["project.bias"] = torch.eye(width), torch.zeros(width)
    return Converted(settings, text, {f"model.{name}": state[name] for name in state})


def _take_rows(state: dict[str, Tensor], pieces: Subwords, end: int) -> None:
    """Embeddings and outputs of our ids in place of all."""
    (stop,) = pieces.encode(["."])
    ids = pieces.tokenizer_ids
    rows = Rows([None, None, ids[stop - len(NAMES)], end, *ids])
    for name in ("embed.weight", "output.weight"):
        state[name] = rows.embedding(state[name])
    absent = state["absent"] = torch.zeros(len(rows.numbers), dtype=torch.bool)
    absent[[PAD, BOS, stop]] = True


def _mapping(state: dict[str, Tensor], width: int) -> list[str]:
    """Settings of the mapping network; that of attention gets biases of 0 where it has none."""
    if "encoder.map.0.weight" in state:
        return [
            "model/encoder=pooled",
            f"model.encoder.prefix={len(state['encoder.map.2.bias']) // width}",
            f"backbone.dim={state['encoder.map.0.weight'].shape[1]}",
        ]
    projections = [name for name in state if name.endswith(".project.linear.weight")]
    for name in projections:
        state.setdefault(name.replace("weight", "bias"), torch.zeros(3 * width))
    expand, dim = state["encoder.project.weight"].shape
    return [
        "model/encoder=queries",
        f"model.encoder.prefix={len(state['encoder.queries'])}",
        f"model.encoder.expand={expand // width}",
        f"model.encoder.encoder.layers={len(projections)}",
        f"model.encoder.encoder.d_ff={len(state['encoder.inner.layers.0.feed_forward.layers.0.bias'])}",
        "model.encoder.encoder.biases=true",
        "model.encoder.encoder.last_norm=false",
        f"backbone.dim={dim}",
    ]
