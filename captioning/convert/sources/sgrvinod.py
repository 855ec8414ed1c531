"""Soft attention of the tutorial `sgrvinod/a-PyTorch-Tutorial-to-Image-Captioning`.

`weights` is a `BEST_checkpoint_*.pth.tar`, a pickle of the modules themselves, and `vocabulary` its
`WORDMAP_*.json`. It differs from Xu et al. 2015 in a ReLU in the score, a gate for each feature,
initial states without tanh and words from the hidden state alone; its network is a ResNet whose map
is averaged to a grid. Biases that are added to each other are one here, and that of the score, the
same at all locations, has no effect. Its beam search has no norm for length, as with
`decoding.length_penalty=0`; it never forbids <unk>, as ours does.
"""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from captioning.convert.source import Converted, Rows, lstm_rows, table
from captioning.convert.unpickle import read_pickle, tensors_of
from captioning.errors import CaptioningError, naming, quoted
from captioning.files import LARGEST_JSON, read_bytes

REPOSITORY = "sgrvinod/a-PyTorch-Tutorial-to-Image-Captioning"
LICENCE = "mit"
PAPER = "Xu et al., Show, Attend and Tell, ICML 2015"
SPECIAL = ("<pad>", "<start>", "<end>", "<unk>")
"""Its names of PAD, BOS, EOS and UNK."""
CHILDREN = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4")
"""Names in torchvision of the layers that its encoder numbers."""
NETWORKS = {6: "resnet50", 23: "resnet101", 36: "resnet152"}
"""By the number of blocks of `layer3`."""
PARAMETERS = table("""
attention.encoder_att.weight attention.score.context.weight
attention.decoder_att.weight attention.score.query.weight
f_beta.weight                attention.gate.weight
f_beta.bias                  attention.gate.bias
init_h.weight                initial.maps.0.0.weight
init_h.bias                  initial.maps.0.0.bias
init_c.weight                initial.maps.1.0.weight
init_c.bias                  initial.maps.1.0.bias
""")
"""Parameters of the decoder that have another name only."""
SETTINGS = """
model=sat_soft model/initial=layer model/head=linear model.title=tutorial
model.d_embed={w[embedding.weight].shape[1]}
model.d_hidden={w[init_h.weight].shape[0]}
model.score.d_attention={w[attention.full_att.weight].shape[1]}
model.score.activation=relu model.attention.gate=features model.initial.last=linear
data.max_words=50 decoding.width=5 decoding.length_penalty=0
"""
"""With sizes of the weights `w`."""


def convert(weights: Path, vocabulary: Path) -> Converted:
    """The captioner of a checkpoint, with its own backbone."""
    saved = read_pickle(weights)
    if not isinstance(saved, dict) or not {"encoder", "decoder"} <= saved.keys():
        raise CaptioningError(f"{quoted(weights)} has no encoder and decoder")
    with naming(f"cannot read {quoted(vocabulary)}"):
        ids = json.loads(read_bytes(vocabulary, LARGEST_JSON))
        rows, words = Rows.of([ids[name] for name in SPECIAL], ids)
    with naming(f"{quoted(weights)} is not as {REPOSITORY} writes it"):
        backbone, settings = _backbone(saved["encoder"])
        theirs = tensors_of(_state(saved["decoder"]), "decoder")
        state = {f"model.{ours}": theirs[name] for name, ours in PARAMETERS.items()}
        state |= {f"model.{name}": tensor for name, tensor in _decoder(theirs, rows).items()}
    return Converted([*settings, *SETTINGS.format(w=theirs).split()], words, state | backbone)


def _decoder(theirs: dict[str, Tensor], rows: Rows) -> dict[str, Tensor]:
    """What is made of several of its parameters, or of rows of them."""
    width = theirs["embedding.weight"].shape[1]
    inputs = lstm_rows(theirs["decode_step.weight_ih"])
    bias = theirs["attention.encoder_att.bias"] + theirs["attention.decoder_att.bias"]
    output, output_bias = rows.output(theirs["fc.weight"], theirs["fc.bias"])
    return {
        "attention.score.context.bias": bias,
        "attention.score.weight": theirs["attention.full_att.weight"][0],
        "cell.hidden.weight": lstm_rows(theirs["decode_step.weight_hh"]),
        "cell.word.weight": inputs[:, :width],
        "cell.word.bias": lstm_rows(theirs["decode_step.bias_ih"] + theirs["decode_step.bias_hh"]),
        "cell.context.weight": inputs[:, width:],
        "embed.weight": rows.embedding(theirs["embedding.weight"]),
        "head.output.weight": output,
        "head.output.bias": output_bias,
    }


def _backbone(encoder: Any) -> tuple[dict[str, Tensor], list[str]]:
    """The state of the network up to its last child, and the settings of the backbone."""
    state = tensors_of(_state(encoder._modules["resnet"]), "encoder")
    names = encoder._modules["resnet"]._modules
    node = CHILDREN[len(names) - 1]
    blocks = names["6"]._modules if "6" in names else range(23)
    grid = int(encoder.enc_image_size)
    settings = [
        "backbone=resnet101",
        f"backbone.name={NETWORKS[len(blocks)]}",
        f"backbone.node={node}",
        "backbone.size=256",
        f"backbone.pool=[{grid},{grid}]",
        "backbone.weights=null",
    ]
    named = {}
    for name, tensor in state.items():
        child, _, rest = name.partition(".")
        named[f"backbone.network.extractor.{CHILDREN[int(child)]}.{rest}"] = tensor
    return named, settings


def _state(module: Any, prefix: str = "", seen: set[int] | None = None) -> dict[str, Any]:
    """Parameters and buffers of a module and those below it, each of which has one place."""
    seen = set() if seen is None else seen
    if id(module) in seen:
        raise ValueError("a module stands in two places")
    seen.add(id(module))
    own = {**module._parameters, **module._buffers}
    state = {f"{prefix}{name}": tensor for name, tensor in own.items() if tensor is not None}
    for name, child in module._modules.items():
        state |= _state(child, f"{prefix}{name}.", seen)
    return state
