"""Compare `model=up_down` with a public implementation, under equal weights.

    python -m experiments.published_code.up_down AttModel.py > up_down.csv

Of AttModel.py (github.com/ruotianluo/self-critical.pytorch) the classes `TopDownCore` and
`Attention` alone are run: two LSTMs and the attention between them. Both sides get the same random
features, words and weights, in double precision. The layers with a ReLU that this implementation
has before the core, and the paper has not, are left out. Prints CSV: the largest differences.

B images, L vectors of D features, captions of C words of E features; the state has D features too,
as there; A features of attention.
"""

import ast
import csv
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn
from torch.nn import functional as F

from captioning.backbones.context import ContextSet
from captioning.config.registry import CONF
from captioning.config.schemas.parts import strip_extra_keys
from captioning.models import Recurrent

B, L, C = 5, 11, 9
V, D, E, A = 23, 19, 7, 13


def published(file: Path) -> nn.Module:
    """The core, as the file defines it."""
    tree = ast.parse(file.read_text())
    kept = {"TopDownCore", "Attention"}
    tree.body = [node for node in tree.body if getattr(node, "name", None) in kept]
    names = {"nn": nn, "torch": torch, "F": F}
    exec(compile(tree, file, "exec"), names)
    sizes = SimpleNamespace(drop_prob_lm=0, input_encoding_size=E, rnn_size=D, att_hid_size=A)
    return names["TopDownCore"](sizes).double().eval()


def ours() -> Recurrent:
    """The model of `conf/model/up_down.yaml`, every parameter random."""
    widths = ["d_embed", "d_hidden", "score.d_attention"]
    sizes = [f"model.{name}={size}" for name, size in zip(widths, (E, D, A), strict=True)]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", ["model=up_down", *sizes])
    settings = strip_extra_keys({"model": OmegaConf.to_container(config.model, resolve=True)})
    model = instantiate(settings["model"], _convert_="all", vocab_size=V, d_context=D, grid=(1, L))
    for parameter in model.double().eval().parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def pytorch_gates(rows: Tensor) -> Tensor:
    """The rows of i, f, o and g in the order of `nn.LSTMCell`: i, f, g, o."""
    i, f, o, g = rows.chunk(4)
    return torch.cat((i, f, g, o))


@torch.no_grad()
def copy_weights(core: nn.Module, model: Recurrent) -> None:
    first, second, score = model.cell.first, model.cell.second, model.attention.score
    inputs = {  # in the order in which the core concatenates them
        core.att_lstm: (first.context, first.constant, first.word),
        core.lang_lstm: (second.context, second.word),
    }
    for theirs, unit in ((core.att_lstm, first), (core.lang_lstm, second)):
        read = torch.cat([each.weight for each in inputs[theirs]], dim=1)
        theirs.weight_ih.copy_(pytorch_gates(read))
        theirs.weight_hh.copy_(pytorch_gates(unit.hidden.weight))
        theirs.bias_ih.copy_(pytorch_gates(unit.word.bias))
        theirs.bias_hh.zero_()
    core.attention.h2att.weight.copy_(score.query.weight)
    core.attention.h2att.bias.zero_()
    core.attention.alpha_net.weight.copy_(score.weight[None])
    core.attention.alpha_net.bias.zero_()


def differences(core: nn.Module, model: Recurrent) -> dict[str, float]:
    """Of the hidden states of all words, and of gradients by the features and the embedding."""
    vectors = torch.randn(B, L, D, dtype=torch.float64, requires_grad=True)
    tokens, weight = torch.randint(V, (B, C)), torch.randn(B, C, D, dtype=torch.float64)
    found = model(ContextSet(vectors, (1, L)), tokens[:, None]).hidden[:, 0]

    keys, words = model.attention.score.context(vectors), model.embed(tokens)
    state = (torch.zeros(2, B, D, dtype=torch.float64),) * 2
    outputs = []
    for t in range(C):
        output, state = core(words[:, t], vectors.mean(dim=1), vectors, keys, state)
        outputs.append(output)
    expected = torch.stack(outputs, dim=1)

    inputs = [vectors, model.embed.weight, model.attention.score.context.weight]
    slopes = [torch.autograd.grad((weight * each).sum(), inputs) for each in (found, expected)]
    return {
        "hidden states": (found - expected).abs().max().item(),
        "gradients": max((a - b).abs().max().item() for a, b in zip(*slopes, strict=True)),
    }


def main() -> None:
    torch.manual_seed(1)
    model, core = ours(), published(Path(sys.argv[1]))
    copy_weights(core, model)
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["quantity", "largest difference"])
    for name, size in differences(core, model).items():
        table.writerow([name, f"{size:.1e}"])


if __name__ == "__main__":
    main()
