"""Read pickles of other projects without running anything.

A pickle names functions and classes and calls them. Here a closed list of names is known. Those
that make tensors and plain containers are called; every other one stands for `Inert`, which keeps
what it is given and calls nothing. A name outside the list ends the reading.
"""

import pickle
import pickletools
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import torch
from torch import Tensor
from torch._utils import _rebuild_parameter, _rebuild_tensor_v2

from captioning.errors import CaptioningError, quoted
from captioning.files import LARGEST_ARRAY, check_size, open_bounded

MOST_BYTES, MOST_STEPS = 2**26, 2**22
"""Of a pickle without its tensors; those of 10,000 words and of a ResNet have some ten thousands of
steps, one of all images of COCO some hundred thousands.
"""
MOST_TUPLES = 2**15
"""They are as many as the levels that values may be nested in; Python itself ends at some ten
times as many, where it computes the hash of such a value.
"""
LARGEST_WEIGHTS = 16 * LARGEST_ARRAY
"""Bytes of a file of tensors."""
_OLD_FORMAT = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
"""Begins files that PyTorch before 1.6 has written."""


class Inert:
    """What is left of an object of a class or of a call: its attributes in `__dict__`."""

    dump_patches = False  # which PyTorch asks of classes in the old format

    def __init__(self, *arguments: Any):
        pass


class InertMapping(dict[Any, Any]):
    """What is left of a mapping with a function for missing keys: its items."""

    def __init__(self, *arguments: Any):
        super().__init__()


KNOWN: dict[str, Any] = {
    "builtins.dict": dict,
    "builtins.list": list,
    "builtins.set": set,
    "collections.Counter": InertMapping,
    "collections.OrderedDict": OrderedDict,
    "collections.defaultdict": InertMapping,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor_v2,
}
"""The names that may stand in a pickle, and what each stands for: those below for `Inert`."""
KNOWN |= dict.fromkeys(
    """
    argparse.Namespace
    data.vocab.Vocab
    data.vocab._default_unk_index
    models.Attention
    models.DecoderWithAttention
    models.Encoder
    numpy.core.multiarray.scalar
    numpy._core.multiarray.scalar
    numpy.dtype
    torch.nn.backends.thnn._get_thnn_function_backend
    torch.nn.modules.activation.ReLU
    torch.nn.modules.activation.Sigmoid
    torch.nn.modules.activation.Softmax
    torch.nn.modules.batchnorm.BatchNorm2d
    torch.nn.modules.container.Sequential
    torch.nn.modules.conv.Conv2d
    torch.nn.modules.dropout.Dropout
    torch.nn.modules.linear.Linear
    torch.nn.modules.pooling.AdaptiveAvgPool2d
    torch.nn.modules.pooling.MaxPool2d
    torch.nn.modules.rnn.LSTMCell
    torch.nn.modules.sparse.Embedding
    torch.optim.adam.Adam
    torchvision.models.resnet.Bottleneck
    """.split(),  # noqa: SIM905 - easier to read
    Inert,
)


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}".replace("__builtin__", "builtins")  # their name in Python 2
        if full not in KNOWN:
            raise pickle.UnpicklingError(f"it names {full}, which is not read")
        return KNOWN[full]


def _load(file: BinaryIO, **options: Any) -> Any:
    return _Reader(file, **options).load()


_MODULE = SimpleNamespace(Unpickler=_Reader, load=_load, __name__="pickle")
"""In place of the module `pickle` for PyTorch."""


def read_pickle(path: Path) -> Any:
    """The content of a file of `torch.save`, in both of its formats, or of a plain pickle.

    Text of Python 2 is read as Latin-1.

    Raises:
        CaptioningError: the file cannot be read, names anything outside `KNOWN`, or is too large.
    """
    try:
        with open_bounded(path, LARGEST_WEIGHTS) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes whose source has changed
            start = file.read(len(_OLD_FORMAT))
            file.seek(0)
            if start.startswith(b"PK"):
                _check_archive(file)
            else:
                _check_steps(file, pickles=4 if start == _OLD_FORMAT else 1)
                if start != _OLD_FORMAT:
                    return _load(file, encoding="latin1")
            return torch.load(
                file, "cpu", pickle_module=_MODULE, weights_only=False, encoding="latin1"
            )
    except MemoryError:
        raise
    except Exception as error:  # readers raise nearly anything for damaged files
        raise CaptioningError(f"cannot read {quoted(path)}: {quoted(error)}") from error


def _check_archive(file: BinaryIO) -> None:
    """Refuse an archive that is compressed, and too large a pickle in it."""
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError("it is compressed")
            if member.filename.endswith(".pkl"):
                with archive.open(member) as content:
                    _check_steps(content, pickles=1)
    file.seek(0)


def _check_steps(file: Any, pickles: int) -> None:
    """Count bytes, steps and tuples of pickles that follow each other, and go back."""
    for _ in range(pickles):
        begin, tuples = file.tell(), 0
        for steps, (step, _, _) in enumerate(pickletools.genops(file)):
            tuples += step.name.startswith("TUPLE")
            check_size(file.tell() - begin, MOST_BYTES)
            if steps > MOST_STEPS or tuples > MOST_TUPLES:
                raise ValueError(f"it has more than {MOST_STEPS:,} steps or {MOST_TUPLES:,} tuples")
    file.seek(0)


def tensors_of(found: Any, what: str) -> dict[str, Tensor]:
    """The tensors of a state dictionary in single precision, by name.

    Raises:
        CaptioningError: it is none, or a tensor is larger than what is stored of it, or not finite.
    """
    if not isinstance(found, dict) or not found:
        raise CaptioningError(
            f"{what} is no state dictionary: it is {quoted(type(found).__name__)}"
        )
    state = dict[str, Tensor]()
    for name, tensor in found.items():
        stored = isinstance(tensor, Tensor) and tensor.layout == torch.strided
        if not stored or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise CaptioningError(f"{what} has {quoted(name)}, which is no tensor as it is stored")
        if not tensor.isfinite().all():
            raise CaptioningError(f"{what} has NaN or infinite numbers in {quoted(name)}")
        state[str(name)] = (
            tensor.detach().float() if tensor.is_floating_point() else tensor.detach()
        )
    return state
