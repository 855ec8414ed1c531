"""Write graphs as ONNX files with one file of shared weights."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import torch

from captioning.errors import CaptioningError
from experiments.onnx.graphs import Graph

try:
    import onnx_ir as ir
    import onnxscript  # noqa: F401 - what `torch.onnx` needs
except ImportError as error:
    raise CaptioningError("graphs need more packages: pip install 'captioning[onnx]'") from error

OPSET = 18
WEIGHTS = "weights.bin"
PAGE = 4096  # weights are aligned to it, so that they can be mapped into memory
VERBOSE = ("torch.onnx", "onnxscript", "onnx_ir")  # loggers that report every node
NEXT = ".next"  # suffix of the state that a step returns; what it reads has the plain name


def write_onnx(graphs: Mapping[str, Graph], folder: Path) -> None:
    """Write `NAME.onnx` for each graph, and shared weights."""
    offsets: dict[bytes, int] = {}
    with (folder / WEIGHTS).open("wb") as file:
        for name, graph in graphs.items():
            model = _converted(graph)
            _move_weights(model.graph, file, offsets)
            ir.save(model, folder / f"{name}.onnx")


def _converted(graph: Graph) -> ir.Model:
    for name in VERBOSE:
        logging.getLogger(name).setLevel(logging.ERROR)
    inputs = list(graph.inputs)
    program = torch.onnx.export(
        graph.program,
        input_names=inputs,
        output_names=[f"{name}{NEXT}" if name in inputs else name for name in graph.outputs],
        opset_version=OPSET,
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    model = program.model
    for node in model.graph.all_nodes():  # lines of this machine's files
        node.metadata_props.clear()
    for values, axes in ((model.graph.inputs, graph.inputs), (model.graph.outputs, graph.outputs)):
        for value, named in zip(values, axes.values(), strict=True):
            assert value.shape is not None
            value.shape = ir.Shape([named.get(i, size) for i, size in enumerate(value.shape)])
    return model


def _move_weights(graph: ir.Graph, file: BinaryIO, offsets: dict[bytes, int]) -> None:
    """Append tensors larger than a page to `file`.

    `offsets` maps digests to those of earlier ones.
    """
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is None or tensor.nbytes < PAGE:
            continue
        content = tensor.tobytes()
        key = hashlib.sha256(content).digest()
        if key not in offsets:
            file.write(bytes(-file.tell() % PAGE))
            offsets[key] = file.tell()
            file.write(content)
        value.const_value = ir.ExternalTensor(
            WEIGHTS,
            offsets[key],
            len(content),
            tensor.dtype,
            shape=ir.Shape(tensor.numpy().shape),
            name=str(value.name),
        )
