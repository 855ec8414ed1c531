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

All but `newfc` embed the regions, with batch normalisation or without. Where the embedding of words
has a ReLU, it is applied to the matrix. Biases that are added to each other are one here, and that
of the score, the same at all regions, has no effect. In `att2in2` the context enters the candidate
alone: for the gates its matrix is zero. Id 0 begins, ends and pads. Its beam search has no norm for
length, as with `decoding.length_penalty=0`, and becomes narrower where a caption ends, unlike ours.
"""

from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn.functional import pad

from captioning.convert.source import Converted, Rows, lstm_rows, renamed, table
from captioning.convert.unpickle import read_pickle, tensors_of
from captioning.errors import CaptioningError, naming, quoted

REPOSITORY = "ruotianluo/self-critical.pytorch"
LICENCE = "mit"
PAPER = (
    "Luo et al., Discriminability Objective for Training Descriptive Captions, CVPR 2018; aoa: "
    "Huang et al., Attention on Attention for Image Captioning, ICCV 2019"
)
PARTS = table("""
.a_2                            .weight
.b_2                            .bias
model.tgt_embed.0.lut.          embed.
fc_embed.0.                     inject.project.
fc_embed.                       inject.project.
att_embed.0.                    encoder.project.
refiner.                        encoder.
model.encoder.                  encoder.
model.decoder.layers.           decoder.
model.decoder.norm.             norm.
model.generator.proj.           output.
logit.                          head.output.
ctx2att.                        attention.score.context.
core.attention.h2att.bias       attention.score.context.bias
core.attention.h2att.weight     attention.score.query.weight
core.attention.alpha_net.weight attention.score.weight
core.attention.norm.            attention.score.norm.
core.attention.linears.0.       attention.score.query.
_core.                          core.
core.i2h.                       cell.word.
core.h2h.weight                 cell.hidden.weight
core.h2h.bias                   cell.word.bias
core.a2c.weight                 cell.context.weight
core.att_lstm.                  cell.first.
core.lang_lstm.                 cell.second.
core.att2ctx.0.                 cell.state.
.weight_ih                      .word.weight
.weight_hh                      .hidden.weight
.bias_ih                        .word.bias
.bias_hh                        .word.bias
.w_1.                           .layers.0.
.w_2.                           .layers.2.
.aoa_layer.0.                   .output.linear.
.output_layer.                  .output.
""")
ENCODER = PARTS | table("""
.sublayer.0.          .attention.
.sublayer.1.          .feed_forward.
.self_attn.linears.3. .attention.output.
.self_attn.linears.0. .attention.project.linear.
.self_attn.linears.1. .attention.project.linear.
.self_attn.linears.2. .attention.project.linear.
.self_attn.           .attention.
""")
DECODER = PARTS | table("""
.sublayer.0.          .self_attention.
.sublayer.1.          .inter_attention.
.sublayer.2.          .feed_forward.
.self_attn.linears.0. .self_attention.project.linear.
.self_attn.linears.1. .self_attention.project.linear.
.self_attn.linears.2. .self_attention.project.linear.
.self_attn.linears.3. .self_attention.output.
.src_attn.linears.0.  .inter_attention.project_query.linear.
.src_attn.linears.1.  .inter_attention.project_image.linear.
.src_attn.linears.2.  .inter_attention.project_image.linear.
.src_attn.linears.3.  .inter_attention.output.
""")
"""Parts of its names, and what they are here."""
NORMALISED = table("""
att_embed.0. encoder.batch_norms.0.
att_embed.1. encoder.project.
att_embed.4. encoder.batch_norms.1.
""")
"""Those of the embedding of regions with `use_bn`."""
LEFT_OUT = r"alpha_net\.bias|\.pe$"
"""The bias of the score, and sinusoids."""
ADDED = (
    "attention.score.context.bias",
    "cell.word.bias",
    "cell.first.word.bias",
    "cell.second.word.bias",
)
"""Biases that are two of theirs."""
DECODING = """
model.title={kind} decoding.width=5 decoding.length_penalty=0 decoding.max_length={length:d}
"""
REGIONS = """
backbone=features backbone.path=att backbone.regions=100
backbone.dim={w[encoder.project.weight].shape[1]}
model/encoder=layers model.encoder.embed=relu model.encoder.positions=none
model.encoder.d_model={w[encoder.project.weight].shape[0]} model.encoder.heads={heads:d}
model.encoder.scale=sqrt_d model.encoder.biases=true model.encoder.layers={layers}
model.encoder.norm={norm} model.encoder.d_ff={d_ff}
model.encoder.gated={gated} model.encoder.batch_norm={batch_norm}
"""
RECURRENT = """
model.d_embed={w[embed.weight].shape[1]} model.d_hidden={w[head.output.weight].shape[1]}
model.dropout={opt[drop_prob_lm]:g}
"""
ADDITIVE = " model.score.d_attention={w[attention.score.weight].shape[1]}"
WHOLE = """
backbone.whole=fc model/inject=whole model.inject.whole={w[encoder.project.weight].shape[1]}
model.inject.width={w[inject.project.weight].shape[0]}
"""
MAXOUT = " model/cell=lstm model.cell.maxout=true"
SYSTEMS = {
    "newfc": "model=show_tell backbone=features backbone.path=fc backbone.regions=1 "
    "backbone.dim={w[inject.project.weight].shape[1]}" + RECURRENT + MAXOUT,
    "att2in2": "model=up_down ~model/inject" + RECURRENT + MAXOUT + REGIONS + ADDITIVE,
    "updown": "model=up_down" + RECURRENT + REGIONS + WHOLE + ADDITIVE,
    "aoa": "model=aoa model.score.norm=deviation model.score.biases=true "
    "model.score.heads={heads:d} model.cell.dropout={dropped:g}" + RECURRENT + REGIONS,
    "transformer": "model=transformer model.norm=pre_deviation model.biases=true "
    "model.max_tokens=100 model.d_model={w[embed.weight].shape[1]} model.heads={heads:d} "
    "model.d_ff={w[decoder.0.feed_forward.layers.0.weight].shape[0]} "
    "model.decoder_layers={decoder_layers} model.dropout={opt[dropout]:g}" + REGIONS,
}
"""Settings by `caption_model`, with sizes of the weights `w` and options `opt` of the training."""
DEFAULTS = {"dropout": 0.1, "ctx_drop": 0, "num_heads": 8, "num_att_heads": 8, "max_length": 0}
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
        if "embed.0.weight" in theirs:
            theirs["embed.weight"] = theirs.pop("embed.0.weight").relu()
        regions = NORMALISED if "att_embed.0.running_mean" in theirs else {}
        decoder = {name: theirs.pop(name) for name in [*theirs] if name.startswith("model.decoder")}
        state = renamed(theirs, ENCODER | regions, LEFT_OUT) | renamed(decoder, DECODER, LEFT_OUT)
        settings = _settings(kind, state, options)
        head = "output" if kind == "transformer" else "head.output"
        state["embed.weight"] = read.embedding(state["embed.weight"])
        ends = written.output(state[f"{head}.weight"], state[f"{head}.bias"])
        state[f"{head}.weight"], state[f"{head}.bias"] = ends
        if kind != "transformer":
            _rearrange(kind, state)
    return Converted(settings, words, {f"model.{name}": state[name] for name in state})


def _settings(kind: str, state: dict[str, Tensor], options: dict[str, Any]) -> list[str]:
    text = DECODING + SYSTEMS[kind]
    if kind != "newfc" and "inject.project.weight" in state:
        text += WHOLE
    ends = [name for name in state if name.endswith("attention.norm.weight")]
    decoder_layers = sum("inter" in name for name in ends)
    layers = sum(name.startswith("encoder.") for name in ends)
    return text.format(
        w=state,
        opt=options,
        kind=kind,
        length=options["max_length"] or options["seq_length"],
        dropped=options["drop_prob_lm"] if options["ctx_drop"] else 0,
        heads=options["num_att_heads" if kind == "transformer" else "num_heads"],
        layers=layers,
        decoder_layers=decoder_layers,
        d_ff=len(state.get("encoder.layers.0.feed_forward.layers.0.weight", ())),
        norm="pre_deviation" if layers else "post",
        gated="encoder.layers.0.attention.output.linear.weight" in state,
        batch_norm=("none", "input", "both")[sum("running_mean" in name for name in state)],
    ).split()


def _rearrange(kind: str, state: dict[str, Tensor]) -> None:
    """Give each input of a cell its columns, and each of two maps its rows; add biases."""
    n = state["head.output.weight"].shape[1]

    def cut(name: str, *others: str) -> None:
        """Leave a matrix without its first columns, of which each of `others` gets n."""
        for other in others:
            state[other], state[name] = state[name].tensor_split([n], dim=1)

    if kind == "updown":
        cut("cell.first.word.weight", "cell.first.context.weight", "cell.first.constant.weight")
        cut("cell.second.word.weight", "cell.second.context.weight")
    if kind == "aoa":
        first = state["cell.first.word.weight"]
        state["cell.first.word.weight"] = first.roll(n, 1)  # columns of the word come first there
        cut("cell.first.word.weight", "cell.first.context.weight")
        cut("cell.state.weight", "cell.context.weight")
        for suffix in ("weight", "bias"):
            value, key = state.pop(f"attention.score.context.{suffix}").chunk(2)
            state[f"attention.score.value.{suffix}"] = value
            state[f"attention.score.key.{suffix}"] = key
    for name in state.keys() & ADDED:
        state[name] = state[name].unflatten(0, (2, -1)).sum(0)
    if "attention.score.weight" in state:
        state["attention.score.weight"] = state["attention.score.weight"][0]
    if kind == "att2in2":
        gates, bias = 3 * n, state.pop("core.a2c.bias")
        state["cell.context.weight"] = pad(state["cell.context.weight"], (0, 0, gates, 0))
        state["cell.word.bias"] = state["cell.word.bias"] + pad(bias, (gates, 0))
    for name in state:
        if name.startswith(("cell.first.", "cell.second.")):
            state[name] = lstm_rows(state[name])
