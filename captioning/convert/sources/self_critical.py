"""Systems of `ruotianluo/self-critical.pytorch`, and AoANet, whose files have the same form.

`weights` is `model.pth`, a state dictionary, and `vocabulary` its `infos_ID.pkl`, with the words
and the options of the training. Features of regions are a folder, and so are vectors of whole
images, `backbone.path` and `backbone.whole`.

| `caption_model` | here |
|---|---|
| `newfc` | `show_tell` that reads the vector of the whole image, with a maxout LSTM |
| `att2in2` | a maxout LSTM with attention by its last state |
| `updown`, `topdown` | `up_down` with an embedding of the vector of the whole image |
| `aoa` | `aoa` with biases, normalised by the standard deviation of a sample |
| `transformer` | `transformer` with biases, normalised likewise before each sublayer |

All but `newfc` have an embedding of the regions, with batch normalisation or without. Where the
embedding of words has a ReLU, it is applied to the matrix. Biases that are added to each other are
one here, and one that all scores have, has no effect. In `att2in2` the context enters the candidate
alone: the gates have rows of zeros. Id 0 begins, ends and pads. Sums of log-probabilities have no
norm for length, as with `decoding.length_penalty=0`; in their search a caption that ends leaves
the beam narrower, and here it does not.
"""

from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from captioning.convert.source import Converted, Rows, lstm_rows
from captioning.convert.unpickle import read_pickle, tensors_of
from captioning.errors import CaptioningError, listed, naming, quoted

REPOSITORY = "ruotianluo/self-critical.pytorch"
LICENCE = "mit"
PAPER = (
    "Luo et al., Discriminability Objective for Training Descriptive Captions, CVPR 2018; aoa: "
    "Huang et al., Attention on Attention for Image Captioning, ICCV 2019"
)
DECODING = """
model.title={kind} decoding.width=5 decoding.length_penalty=0 decoding.max_length={length:d}
"""
REGIONS = """
backbone=features backbone.path=att backbone.regions=100
backbone.dim={w[att_embed.0.weight].shape[1]} model.encoder.d_model={w[att_embed.0.weight].shape[0]}
model/encoder=layers model.encoder.embed=relu model.encoder.positions=none
model.encoder.scale=sqrt_d model.encoder.biases=true model.encoder.layers={layers}
model.encoder.norm={norm} model.encoder.heads={heads:d} model.encoder.d_ff={d_ff}
model.encoder.gated={gated} model.encoder.batch_norm={batch_norm}
"""
RECURRENT = """
model.d_embed={w[embed.weight].shape[1]} model.d_hidden={w[logit.weight].shape[1]}
model.dropout={opt[drop_prob_lm]:g}
"""
ADDITIVE = " model.score.d_attention={w[ctx2att.weight].shape[0]}"
WHOLE = """
backbone.whole=fc model/inject=whole model.inject.whole={w[fc_embed.weight].shape[1]}
model.inject.width={w[fc_embed.weight].shape[0]}
"""
MAXOUT = " model/cell=lstm model.cell.maxout=true"
SYSTEMS = {
    "newfc": "model=show_tell backbone=features backbone.path=fc backbone.regions=1 "
    "backbone.dim={w[fc_embed.weight].shape[1]}" + RECURRENT + MAXOUT,
    "att2in2": "model=up_down ~model/inject" + RECURRENT + MAXOUT + REGIONS + ADDITIVE,
    "updown": "model=up_down" + RECURRENT + REGIONS + ADDITIVE,
    "aoa": "model=aoa model.score.norm=deviation model.score.biases=true "
    "model.score.heads={heads:d} model.cell.dropout={dropped:g}" + RECURRENT + REGIONS,
    "transformer": "model=transformer model.norm=pre_deviation model.biases=true "
    "model.max_tokens=100 model.d_model={w[embed.weight].shape[1]} model.heads={heads:d} "
    "model.d_ff={w[model.decoder.layers.0.feed_forward.w_1.weight].shape[0]} "
    "model.decoder_layers={decoder_layers} model.dropout={opt[dropout]:g}" + REGIONS,
}
"""Settings by `caption_model`, with sizes of the weights `w` and options `opt` of the training."""
DEFAULTS = {
    "dropout": 0.1,
    "ctx_drop": 0,
    "num_heads": 8,
    "num_att_heads": 8,
    "max_length": 0,
}
ONLY = {
    "logit_layers": 1,
    "decide_length": "none",
    "use_box": 0,
    "norm_att_feat": 0,
    "bos_idx": 0,
    "eos_idx": 0,
    "pad_idx": 0,
    "use_multi_head": 2,
    "multi_head_scale": 1,
    "decoder_type": "AoA",
    "out_res": 0,
}
"""Options that can have no other value here."""
BATCH_NORM = {"att_embed.0.": "att_embed.norm.", "att_embed.1.": "att_embed.0."}
"""Places of the layers in the embedding of the regions, with `use_bn`."""
SAME = {
    "_core.": "core.",
    "fc_embed.0.": "fc_embed.",
    "refiner.": "model.encoder.",
    "model.tgt_embed.0.lut.": "embed.",
    ".a_2": ".weight",
    ".b_2": ".bias",
}
"""Parts of their names that mean the same, in several systems or versions."""
NAMES = """
embed.weight = embed.weight
head.output.* = logit.*
inject.project.* = fc_embed.*
encoder.batch_norms.0.* = att_embed.norm.*
encoder.project.* = att_embed.0.*
encoder.batch_norms.1.* = att_embed.4.*
encoder.norm.* = model.encoder.norm.*
encoder.layers.#.attention.norm.* = model.encoder.layers.#.sublayer.0.norm.*
encoder.layers.#.attention.project.linear.* = model.encoder.layers.#.self_attn.linears.@.*
encoder.layers.#.attention.output.* = model.encoder.layers.#.self_attn.linears.3.*
encoder.layers.#.attention.output.linear.* = model.encoder.layers.#.self_attn.aoa_layer.0.*
encoder.layers.#.feed_forward.norm.* = model.encoder.layers.#.sublayer.1.norm.*
encoder.layers.#.feed_forward.layers.0.* = model.encoder.layers.#.feed_forward.w_1.*
encoder.layers.#.feed_forward.layers.2.* = model.encoder.layers.#.feed_forward.w_2.*

attention.score.weight = core.attention.alpha_net.weight
attention.score.query.weight = core.attention.h2att.weight
attention.score.context.weight = ctx2att.weight
attention.score.context.bias = ctx2att.bias + core.attention.h2att.bias
attention.score.norm.* = core.attention.norm.*
attention.score.query.* = core.attention.linears.0.*
attention.score.key.* = ctx2att.*.key
attention.score.value.* = ctx2att.*.value

cell.word.weight = core.i2h.weight
cell.word.bias = core.i2h.bias + core.h2h.bias
cell.hidden.weight = core.h2h.weight
cell.context.weight = core.a2c.weight

cell.first.word.weight = core.att_lstm.weight_ih.word
cell.first.word.bias = core.att_lstm.bias_ih + core.att_lstm.bias_hh
cell.first.hidden.weight = core.att_lstm.weight_hh
cell.first.context.weight = core.att_lstm.weight_ih.output
cell.first.constant.weight = core.att_lstm.weight_ih.image
cell.second.word.weight = core.lang_lstm.weight_ih.first
cell.second.word.bias = core.lang_lstm.bias_ih + core.lang_lstm.bias_hh
cell.second.hidden.weight = core.lang_lstm.weight_hh
cell.second.context.weight = core.lang_lstm.weight_ih.attended
cell.state.weight = core.att2ctx.0.weight.first
cell.state.bias = core.att2ctx.0.bias
cell.context.weight = core.att2ctx.0.weight.attended

output.* = model.generator.proj.*
norm.* = model.decoder.norm.*
decoder.#.self_attention.norm.* = model.decoder.layers.#.sublayer.0.norm.*
decoder.#.self_attention.project.linear.* = model.decoder.layers.#.self_attn.linears.@.*
decoder.#.self_attention.output.* = model.decoder.layers.#.self_attn.linears.3.*
decoder.#.inter_attention.norm.* = model.decoder.layers.#.sublayer.1.norm.*
decoder.#.inter_attention.project_query.linear.* = model.decoder.layers.#.src_attn.linears.0.*
decoder.#.inter_attention.project_image.linear.* = model.decoder.layers.#.src_attn.linears.@.*
decoder.#.inter_attention.output.* = model.decoder.layers.#.src_attn.linears.3.*
decoder.#.feed_forward.norm.* = model.decoder.layers.#.sublayer.2.norm.*
decoder.#.feed_forward.layers.0.* = model.decoder.layers.#.feed_forward.w_1.*
decoder.#.feed_forward.layers.2.* = model.decoder.layers.#.feed_forward.w_2.*
"""
"""Our names and theirs, with # for the number of a layer and * for `SUFFIXES`. Those with 0, 1 and
2 in place of @, as far as they are not named before, are rows of one matrix of ours. Some of theirs
are parts, see `CUT`.
"""

CUT = {
    "core.att_lstm.weight_ih": ("output", "image", "word"),
    "core.lang_lstm.weight_ih": ("attended", "first"),
}
CUT_OF_AOA = {
    "core.att_lstm.weight_ih": ("word", "output"),
    "core.att2ctx.0.weight": ("attended", "first"),
    "ctx2att.weight": ("value", "key"),
    "ctx2att.bias": ("value", "key"),
}
"""What the columns of a matrix, or the rows of `ctx2att`, belong to: a word, or else as many as the
state has features.
"""
LEFT_OUT = {"core.attention.alpha_net.bias", "model.tgt_embed.1.pe"}
"""The bias of all scores, and sinusoids, which are computed here."""
SUFFIXES = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
MOST_LAYERS = 100


def convert(weights: Path, vocabulary: Path) -> Converted:
    """The captioner of a state dictionary, of features that were computed before."""
    infos = read_pickle(vocabulary)
    with naming(f"{quoted(vocabulary)} is not as {REPOSITORY} writes it"):
        options = ONLY | DEFAULTS | vars(infos["opt"])
        kind = options["caption_model"].replace("topdown", "updown")
        if kind not in SYSTEMS:
            raise CaptioningError(f"caption_model={quoted(kind)} is none of {', '.join(SYSTEMS)}")
        for name, only in ONLY.items():
            if options[name] != only:
                raise CaptioningError(f"{name}={quoted(options[name])} must be {only} here")
        ids = {word: int(row) for row, word in infos["vocab"].items()}
        read, words = Rows.of([None, 0, None, ids.get("UNK")], ids)
        written, _ = Rows.of([None, None, 0, ids.get("UNK")], ids)
    theirs = tensors_of(read_pickle(weights), quoted(weights))
    with naming(f"{quoted(weights)} is not as {REPOSITORY} writes it"):
        found = _renamed(theirs)
        settings = _settings(kind, found, options)
        found["embed.weight"] = read.embedding(found["embed.weight"])
        output = "model.generator.proj" if kind == "transformer" else "logit"
        head = written.output(found[f"{output}.weight"], found[f"{output}.bias"])
        found[f"{output}.weight"], found[f"{output}.bias"] = head
        _cut(found, kind, head[0].shape[1])
        state = {f"model.{name}": tensor for name, tensor in _named(found).items()}
    return Converted(settings, words, state)


def _renamed(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors, by names that are the same in all systems."""
    same = SAME | (BATCH_NORM if "att_embed.0.running_mean" in theirs else {})
    found = dict[str, Tensor]()
    for name, tensor in theirs.items():
        if name == "embed.0.weight":
            name, tensor = "embed.weight", tensor.relu()
        for part, ours in same.items():
            name = name.replace(part, ours)
        found[name] = lstm_rows(tensor) if "_lstm." in name else tensor
    return found


def _settings(kind: str, found: dict[str, Tensor], options: dict[str, Any]) -> list[str]:
    text = DECODING + SYSTEMS[kind]
    if kind != "newfc" and "fc_embed.weight" in found:
        text += WHOLE
    layers = _layers(found, "encoder")
    return text.format(
        w=found,
        opt=options,
        kind=kind,
        length=options["max_length"] or options["seq_length"],
        dropped=options["drop_prob_lm"] if options["ctx_drop"] else 0,
        heads=options["num_att_heads" if kind == "transformer" else "num_heads"],
        layers=layers,
        decoder_layers=_layers(found, "decoder"),
        d_ff=len(found.get("model.encoder.layers.0.feed_forward.w_1.weight", ())),
        norm="pre_deviation" if layers else "post",
        gated="model.encoder.layers.0.self_attn.aoa_layer.0.weight" in found,
        batch_norm=("none", "input", "both")[sum("running_mean" in name for name in found)],
    ).split()


def _layers(found: dict[str, Tensor], stack: str) -> int:
    norms = (f"model.{stack}.layers.{k}.sublayer.0.norm.weight" for k in range(MOST_LAYERS))
    return sum(name in found for name in norms)


def _cut(found: dict[str, Tensor], kind: str, state: int) -> None:
    """Replace matrices by their parts, and give those of some rows zeros in the others."""
    for name, parts in (CUT_OF_AOA if kind == "aoa" else CUT).items():
        if name in found:
            axis = 0 if name.startswith("ctx2att") else 1
            rest = found[name].shape[axis] - state * (len(parts) - 1)
            sizes = [rest if part == "word" else state for part in parts]
            for part, tensor in zip(parts, found.pop(name).split(sizes, axis), strict=True):
                found[f"{name}.{part}"] = tensor
    if kind == "att2in2":
        gates, bias = 3 * state, found.pop("core.a2c.bias")
        found["core.a2c.weight"] = pad(found["core.a2c.weight"], (0, 0, gates, 0))
        found["core.i2h.bias"] = found["core.i2h.bias"] + pad(bias, (gates, 0))
    if "core.attention.alpha_net.weight" in found:
        found["core.attention.alpha_net.weight"] = found["core.attention.alpha_net.weight"][0]


def _named(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Ours, of which all of theirs must be parts."""
    ours, used = dict[str, Tensor](), {*LEFT_OUT}
    for number, suffix, line in product(range(MOST_LAYERS), SUFFIXES, NAMES.split("\n")):
        name, _, theirs = line.replace("#", str(number)).replace("*", suffix).partition(" = ")
        several = "@" in theirs
        parts = [theirs.replace("@", k) for k in "012"] if several else theirs.split(" + ")
        parts = [part for part in parts if part not in used]
        if not found.keys().isdisjoint(parts):
            tensors = [found[part] for part in parts]
            ours[name] = torch.cat(tensors) if several else torch.stack(tensors).sum(0)
            used.update(parts)
    if unknown := found.keys() - used:
        raise CaptioningError(f"it has {listed(sorted(unknown), 5)}, which is not known")
    return ours
