"""Read pickles and tensors of other projects without running anything of theirs.

A pickle names functions and classes and calls them. Here a closed list of names is known, and each
stands for a class of this module, none of which can be changed from a pickle: `Inert` keeps what it
is given and does nothing, `Stored` tells where in the file a tensor lies. Any other name ends the
reading. PyTorch's own reader is not used, as it runs programs that a file may have beside tensors.
"""

import math
import pickle
import pickletools
import struct
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from captioning.errors import CaptioningError, naming, quoted
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
MOST_AXES = 8
"""Of a tensor."""
_OLD_FORMAT = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
"""Begins files that PyTorch before 1.6 has written."""


class Sealed(type):
    """A class whose attributes no pickle can set."""

    def __setattr__(cls, name: str, value: object) -> None:
        raise pickle.UnpicklingError(f"it sets {name} of a class")


class Inert(metaclass=Sealed):
    """What is left of an object of a class or of a call: its attributes in `__dict__`."""

    def __init__(self, *arguments: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)


class InertMapping(dict[Any, Any], metaclass=Sealed):
    """What is left of a mapping of any kind: its items."""

    def __init__(self, *arguments: Any):
        super().__init__()


class First(metaclass=Sealed):
    """A parameter, which is its tensor here."""

    def __new__(cls, tensor: Any, *arguments: Any) -> Any:
        return tensor


class Storage(NamedTuple):
    """Numbers in a file, at `starts[key]` once all of it is read."""

    path: Path
    starts: dict[str, int]
    dtype: np.dtype[Any]
    key: str
    length: int


class Stored(metaclass=Sealed):
    """A tensor that is not read yet."""

    def __init__(self, storage: Any, offset: Any, size: Any, stride: Any, *arguments: Any):
        self.given = storage, offset, size, stride

    def __setstate__(self, state: Any) -> None:
        pass

    def read(self) -> Tensor:
        """The tensor in single precision, or of integers.

        Raises:
            ValueError: it is larger than what is stored of it, or not as PyTorch writes tensors.
        """
        storage, offset, size, stride = self.given
        numbers = [offset, *size, *stride]
        if not isinstance(storage, Storage) or not all(type(x) is int and x >= 0 for x in numbers):
            raise ValueError("it is no tensor")
        count = math.prod(size)
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        beyond = count and last >= storage.length
        if len(size) > MOST_AXES or count > storage.length or beyond:
            raise ValueError("it is larger than what is stored of it")
        if not count:
            return torch.zeros(size)
        width, start = storage.dtype.itemsize, storage.starts[storage.key]
        if start + storage.length * width > storage.path.stat().st_size:
            raise ValueError("it is cut off")
        row = np.memmap(storage.path, storage.dtype, "r", start + offset * width, last - offset + 1)
        strides = [step * width for step in stride]
        tensor = torch.from_numpy(np.array(np.lib.stride_tricks.as_strided(row, size, strides)))
        if not tensor.isfinite().all():
            raise ValueError("it has NaN or infinite numbers")
        return tensor.float() if tensor.is_floating_point() else tensor


_NUMBERS = {
    "Float": "<f4",
    "Double": "<f8",
    "Half": "<f2",
    "Long": "<i8",
    "Int": "<i4",
    "Short": "<i2",
    "Char": "i1",
    "Byte": "u1",
    "Bool": "?",
}
KNOWN: dict[str, Any] = {f"torch.{name}Storage": np.dtype(_NUMBERS[name]) for name in _NUMBERS}
KNOWN |= {
    "collections.Counter": InertMapping,
    "collections.defaultdict": InertMapping,
    "torch._utils._rebuild_parameter": First,
    "torch._utils._rebuild_tensor": Stored,
    "torch._utils._rebuild_tensor_v2": Stored,
    "torch.nn.parameter.Parameter": First,
}
KNOWN |= dict.fromkeys(
    """
    _codecs.encode
    argparse.Namespace
    builtins.dict
    builtins.list
    builtins.set
    data.vocab.Vocab
    data.vocab._default_unk_index
    models.Attention
    models.DecoderWithAttention
    models.Encoder
    numpy.core.multiarray._reconstruct
    numpy.core.multiarray.scalar
    numpy._core.multiarray._reconstruct
    numpy._core.multiarray.scalar
    numpy.dtype
    numpy.ndarray
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
"""The names that may stand in a pickle, and what each stands for."""


class _Reader(pickle.Unpickler):
    """The next pickle of a file, text of Python 2 as Latin-1."""

    def __init__(self, file: Any, path: Path):
        super().__init__(file, encoding="latin1")
        self.path, self.copied = path, 0
        self.starts, self.storages = dict[str, int](), dict[str, Storage]()

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}".replace("__builtin__", "builtins")  # their name in Python 2
        if full == "collections.OrderedDict":
            return self.ordered
        if full not in KNOWN:
            raise pickle.UnpicklingError(f"it names {full}, which is not read")
        return KNOWN[full]

    def ordered(self, items: Any = ()) -> InertMapping:
        """A mapping that Python 2 has written with its items; they are counted."""
        self.copied += len(items)
        if self.copied > MOST_STEPS:
            raise ValueError("it repeats too much")
        mapping = InertMapping()
        mapping.update(items)
        return mapping

    def persistent_load(self, pid: Any) -> Any:
        """A storage; of the old format also a class with its source."""
        if pid[0] == "module":
            return pid[1]
        kind, dtype, key, _, count, *view = pid
        if kind != "storage" or not isinstance(dtype, np.dtype) or type(count) is not int:
            raise ValueError("it has what is no storage")
        if any(view):
            raise ValueError("it has a view of a storage")
        return self.storages.setdefault(
            key, Storage(self.path, self.starts, dtype, str(key), count)
        )


def read_pickle(path: Path) -> Any:
    """The content of a file of `torch.save`, in both of its formats, or of a plain pickle.

    Raises:
        CaptioningError: the file cannot be read, names anything outside `KNOWN`, or is too large.
    """
    with naming(f"cannot read {quoted(path)}"), open_bounded(path, LARGEST_WEIGHTS) as file:
        start = file.read(len(_OLD_FORMAT))
        file.seek(0)
        if zipfile.is_zipfile(file):
            return _read_archive(file, path)
        file.seek(0)
        return _read_old(file, path) if start == _OLD_FORMAT else _next(file, path).load()


def _read_archive(file: BinaryIO, path: Path) -> Any:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("it is compressed")
        (content,) = [each for each in members if each.filename.endswith("data.pkl")]
        check_size(content.file_size, MOST_BYTES)
        with archive.open(content) as stream:
            reader = _next(stream, path)
            found = reader.load()
    folder = content.filename.removesuffix(".pkl")
    for key in reader.storages:
        header = archive.getinfo(f"{folder}/{key}").header_offset
        file.seek(header + 26)  # where the lengths of its name and of a padding stand
        reader.starts[key] = header + 30 + sum(struct.unpack("<HH", file.read(4)))
    return found


def _read_old(file: BinaryIO, path: Path) -> Any:
    """Number, version and machine, then the content, the keys of storages, and these."""
    for _ in range(3):
        _next(file, path).load()
    reader = _next(file, path)
    found = reader.load()
    for key in _next(file, path).load():
        storage = reader.storages[key]
        file.seek(8, 1)  # the number of elements, which the content has told
        reader.starts[key] = file.tell()
        file.seek(storage.length * storage.dtype.itemsize, 1)
    if file.tell() > path.stat().st_size:
        raise ValueError("it is cut off")
    return found


def _next(file: Any, path: Path) -> _Reader:
    """A reader of the pickle that begins here, whose bytes, steps and tuples are counted first."""
    begin, tuples = file.tell(), 0
    for steps, (step, argument, _) in enumerate(pickletools.genops(file)):
        tuples += step.name.startswith("TUPLE")
        check_size(file.tell() - begin, MOST_BYTES)
        if "PUT" in step.name or step.name == "FRAME":  # which reserve as many places, or bytes
            check_size(int(argument or 0), MOST_BYTES if step.name == "FRAME" else MOST_STEPS)
        if steps > MOST_STEPS or tuples > MOST_TUPLES:
            raise ValueError(f"it has more than {MOST_STEPS:,} steps or {MOST_TUPLES:,} tuples")
    file.seek(begin)
    return _Reader(file, path)


def tensors_of(found: Any, what: str) -> dict[str, Tensor]:
    """The tensors of a state dictionary in single precision, by name.

    Raises:
        CaptioningError: it is none, or a tensor is not as it is stored.
    """
    if not isinstance(found, dict) or not found:
        raise CaptioningError(
            f"{what} is no state dictionary: it is {quoted(type(found).__name__)}"
        )
    state, sizes, read = {}, {}, 0
    for name, stored in found.items():
        with naming(f"{what}: {quoted(name)}"):
            state[str(name)] = tensor = stored.read()
            storage, read = stored.given[0], read + tensor.numel()
            sizes[storage.key] = storage.length
            if read > 2 * sum(sizes.values()):  # an embedding may be the output layer, too
                raise ValueError("it repeats others")
    return state
