"""The Meshed-Memory Transformer of `aimagelab/meshed-memory-transformer`.

`weights` is a `meshed_memory_transformer.pth` and `vocabulary` its `vocab.pkl`. Its differences
from `model=meshed_memory` are settings, or are contained in the weights exactly:

- Embeddings are not multiplied by the root of E: rows here are theirs divided by it.
- Its table of positions begins with one for padding and is not trained: the others are a learned
  table here, which fine-tuning would train.
- Its output layer has no bias: that of ours is 0.

Detections of fewer than 50 regions are padded with zeros that its encoder attends to: it masks
vectors that are zero after they are embedded and normalised, and these are not. Of more regions the
first 50 count. The number of heads is not in the file.

Its beam search ranks by sums of log-probabilities, as with `decoding.length_penalty=0`. A caption
that ends keeps a place in the beam there, and here it does not; it never forbids <unk>, as ours
does. Its evaluation also joins equal neighbouring words.
"""

import math
from pathlib import Path

from captioning.convert.source import Converted, Rows, renamed, table
from captioning.convert.unpickle import read_pickle, tensors_of
from captioning.errors import naming, quoted
from captioning.tokens import NAMES

REPOSITORY = "aimagelab/meshed-memory-transformer"
LICENCE = "bsd-3-clause"
PAPER = "Cornia et al., Meshed-Memory Transformer for Image Captioning, CVPR 2020"
PARTS = table("""
encoder.fc.               encoder.project.
encoder.layer_norm.       encoder.embed_norm.
.mhatt.attention.m_k      .attention.memory.key
.mhatt.attention.m_v      .attention.memory.value
.mhatt.attention.fc_q.    .attention.project.linear.
.mhatt.attention.fc_k.    .attention.project.linear.
.mhatt.attention.fc_v.    .attention.project.linear.
.mhatt.attention.fc_o.    .attention.output.
.mhatt.layer_norm.        .attention.norm.
decoder.word_emb.         embed.
decoder.pos_emb.weight    positions.table
decoder.fc.               output.
decoder.layers.           decoder.
.self_att.attention.fc_q. .self_attention.project.linear.
.self_att.attention.fc_k. .self_attention.project.linear.
.self_att.attention.fc_v. .self_attention.project.linear.
.self_att.attention.fc_o. .self_attention.output.
.self_att.layer_norm.     .self_attention.norm.
.enc_att.attention.fc_q.  .inter_attention.project_query.linear.
.enc_att.attention.fc_k.  .inter_attention.project_image.linear.
.enc_att.attention.fc_v.  .inter_attention.project_image.linear.
.enc_att.attention.fc_o.  .inter_attention.output.
.enc_att.layer_norm.      .inter_attention.norm.
.fc_alpha1.               .inter_attention.gates.0.
.fc_alpha2.               .inter_attention.gates.1.
.fc_alpha3.               .inter_attention.gates.2.
.pwff.fc1.                .feed_forward.layers.0.
.pwff.fc2.                .feed_forward.layers.2.
.pwff.layer_norm.         .feed_forward.norm.
""")
"""Parts of its names, and what they are here."""
SETTINGS = """
model=meshed_memory model.text_positions=learned model.biases=true model.encoder.biases=true
model.d_model={w[embed.weight].shape[1]} model.heads={heads:d}
model.d_ff={w[decoder.0.feed_forward.layers.0.weight].shape[0]}
model.decoder_layers={decoder_layers} model.max_tokens={w[positions.table].shape[0]}
model.encoder.layers={layers} model.encoder.memory={slots}
backbone=features backbone.path=coco_detections.hdf5 backbone.regions=50
backbone.dim={w[encoder.project.weight].shape[1]} backbone.sample=first backbone.padding=zeros
decoding.width=5 decoding.max_length=20 decoding.length_penalty=0
"""
"""With sizes of the weights `w`."""
KEPT = r"\.running_"
"""Buffers that it fills while it decodes."""


def convert(weights: Path, vocabulary: Path, heads: int = 8) -> Converted:
    """The captioner of a checkpoint, for precomputed features; published ones have 8 heads."""
    saved, known = read_pickle(weights), read_pickle(vocabulary)
    with naming(f"{quoted(vocabulary)} is not as {REPOSITORY} writes it"):
        ids = {word: i for i, word in enumerate(known.itos)}
        rows, words = Rows.of([ids[name] for name in NAMES], ids)
    with naming(f"{quoted(weights)} is not as {REPOSITORY} writes it"):
        theirs = tensors_of(saved["state_dict"], "state_dict")
        state = renamed(theirs, PARTS, KEPT)
        layers = 0
        for name in state:
            if ".memory." in name:
                (slots,) = state[name]
                state[name] = slots.unflatten(1, (heads, -1)).transpose(0, 1)
                layers += name.endswith("key")
        state["positions.table"] = state["positions.table"][1:]
        embedding = state["embed.weight"]
        state["embed.weight"] = rows.embedding(embedding) / math.sqrt(embedding.shape[1])
        state["output.weight"], state["output.bias"] = rows.output(state["output.weight"])
        settings = SETTINGS.format(
            w=state,
            heads=heads,
            layers=layers,
            decoder_layers=sum(".gates.0.bias" in name for name in state),
            slots=len(slots),
        )
    return Converted(settings.split(), words, {f"model.{name}": state[name] for name in state})
