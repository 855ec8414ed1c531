"""Write graphs as ONNX files with one file of shared weights. E features of the last layer, V words."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from captioning.errors import CaptioningError
from captioning.export.graphs import Graph

try:
    import onnx_ir as ir
    import onnxscript  # noqa: F401 - what `torch.onnx` needs
except ImportError as error:
    raise CaptioningError("format=onnx needs more packages: pip install 'captioning[onnx]'") from error

OPSET = 18
WEIGHTS = "weights.bin"
# Levels of weights on either side of zero: 7 bits. CPUs without VNNI add two products with inputs in 16 bits, which end
# at 32,767: 2 * 255 * 63 is below that, 2 * 255 * 127 is not.
LEVELS = 63
PAGE = 4096  # weights are aligned to it, so that they can be mapped into memory
VERBOSE = ("torch.onnx", "onnxscript", "onnx_ir")  # loggers that report every node
NEXT = ".next"  # suffix of the state that a step returns; what it reads has the plain name


def write_onnx(graphs: Mapping[str, Graph], folder: Path, int8: bool) -> None:
    """Write `NAME.onnx` for each graph, and shared weights; `int8` quantises the last layer of start and step."""
    places: dict[bytes, int] = {}
    with (folder / WEIGHTS).open("wb") as file:
        for name, graph in graphs.items():
            model = _converted(graph)
            if int8 and name != "backbone":
                _quantise(model.graph)
            _move_weights(model.graph, file, places)
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
    model: ir.Model = program.model
    for values, axes in ((model.graph.inputs, graph.inputs), (model.graph.outputs, graph.outputs)):
        for value, named in zip(values, axes.values(), strict=True):
            assert value.shape is not None
            value.shape = ir.Shape([named.get(i, size) for i, size in enumerate(value.shape)])
    return model


def _move_weights(graph: ir.Graph, file: BinaryIO, places: dict[bytes, int]) -> None:
    """Append tensors larger than a page to `file`; `places` maps digests to offsets of earlier ones."""
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is None or tensor.nbytes < PAGE:
            continue
        content = tensor.tobytes()
        key = hashlib.sha256(content).digest()
        if key not in places:
            file.write(bytes(-file.tell() % PAGE))
            places[key] = file.tell()
            file.write(content)
        value.const_value = ir.ExternalTensor(
            WEIGHTS, places[key], len(content), tensor.dtype, shape=ir.Shape(tensor.numpy().shape), name=str(value.name)
        )


def _quantise(graph: ir.Graph) -> None:
    """Quantise the last layer: W `[E, V]` to 7 bits with a scale per word, its input dynamically to 8 bits."""
    layer = _last_layer(graph)
    x, weight = layer.inputs
    assert weight is not None and weight.const_value is not None  # noqa: PT018
    numbers = weight.const_value.numpy()
    scale = np.maximum(np.abs(numbers).max(axis=0), np.finfo(np.float32).tiny) / LEVELS
    constants = {"int8": np.rint(numbers / scale).astype(np.int8), "scale": scale.astype(np.float32)}
    given = {}
    for name, array in constants.items():
        given[name] = ir.Value(name=f"words.{name}", const_value=ir.tensor(array, name=f"words.{name}"))
        graph.register_initializer(given[name])
    quantised = ir.node("DynamicQuantizeLinear", [x], num_outputs=3)
    levels, x_scale, zero = quantised.outputs
    product = ir.node("MatMulInteger", [levels, given["int8"], zero])
    wide = ir.node("Cast", product.outputs, {"to": ir.DataType.FLOAT})
    scales = ir.node("Mul", [x_scale, given["scale"]])
    result = ir.node("Mul", [wide.outputs[0], scales.outputs[0]])
    graph.insert_before(layer, [quantised, product, wide, scales, result])
    ir.convenience.replace_all_uses_with(layer.outputs[0], result.outputs[0])
    graph.remove(layer, safe=True)
    if not weight.uses():
        del graph.initializers[str(weight.name)]


def _last_layer(graph: ir.Graph) -> ir.Node:
    value: ir.Value | None = next(output for output in graph.outputs if output.name == "log_probs")
    while value is not None and (node := value.producer()) is not None:
        if node.op_type == "MatMul" and node.inputs[1] is not None and node.inputs[1].const_value is not None:
            return node
        value = node.inputs[0]
    raise CaptioningError("quantise=output: this model has no linear layer before its words")
