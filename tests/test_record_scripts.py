"""Scripts of the records: weights from published packages, components of variance."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat
from torch.nn import functional
from torchvision.models import squeezenet1_1
from torchvision.transforms.functional import normalize

from captioning.metrics.contrasts import Measured, contrast
from experiments.architecture_or_features import components
from experiments.error_rates import rates
from experiments.power import Components
from experiments.weights import convert

pytestmark = pytest.mark.soak  # they guard records
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def test_squeezenet_sees_normalised_rgb(tmp_path):
    """In place of normalised RGB the published network takes BGR without its mean."""
    random = np.random.default_rng(0)
    network, layers = squeezenet1_1(), {}
    fires = ["0", "3", "4", "6", "7", "9", "10", "11", "12"]
    for name, layer in network.features.named_modules():
        if isinstance(layer, torch.nn.Conv2d):
            number, _, part = name.partition(".")
            fire = f"fire{fires.index(number) + 1}/{part.replace('squeeze', 'squeeze1x1')}"
            out, into, height, width = layer.weight.shape
            array = np.empty((1, 2), object)
            array[0, 0] = random.standard_normal((height, width, into, out)).astype(np.float32)
            array[0, 1] = random.standard_normal(out).astype(np.float32)
            layers["conv1" if number == "0" else fire] = array
    savemat(tmp_path / "published.mat", layers)
    weights = convert.squeezenet1_1(tmp_path / "published.mat")
    network.features.load_state_dict(
        {name.removeprefix("features."): tensor for name, tensor in weights.items()}
    )

    photograph = torch.from_numpy(random.integers(0, 256, (1, 3, 9, 9))).float()
    kernel, bias = (torch.from_numpy(array) for array in layers["conv1"][0])
    bgr = photograph.flip(1) - torch.tensor([104.006, 116.669, 122.679])[:, None, None]
    expected = functional.conv2d(bgr, kernel.permute(3, 2, 0, 1), bias, stride=2)
    found = network.features[0](normalize(photograph / 255, MEAN, STD))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(
    "runs, ratio, low, high", [((3, 3), 1, 1.5, 5), ((3, 2), 10, 0, 6.5), ((1, 3), 1, 0, 7.5)]
)
def test_intervals_of_equal_systems_exclude_zero_as_often_as_they_say(runs, ratio, low, high):
    """Flickr8k's variances, on 400 images; the band is widened by three binomial errors."""
    case = rates.Recorded(Components(seed=0.32, image=165.7, both=592.5), *[np.zeros(0)] * 3)
    trials = 4000
    found = [now.excludes_zero for now, _, _ in rates.trials(trials, case, runs, 400, ratio)]
    error = 300 * (0.05 * 0.95 / trials) ** 0.5
    assert low - error <= 100 * np.mean(found) <= high + error


@pytest.mark.parametrize("runs", [2, 3])
def test_tables_of_the_simulation_have_the_p_of_contrasts(runs, monkeypatch):
    monkeypatch.syspath_prepend(Path(rates.__file__).parent)
    from families import p_values

    systems, trials, images = 4, 5, 30
    random = np.random.default_rng(0)
    values = random.normal(50, 9, (systems, trials, runs, images))
    values += random.normal(0, 3, (systems, trials, runs, 1))
    measured = [[Measured.from_values(each) for each in of_system] for of_system in values]
    residual = np.array([[each.residual for each in of_system] for of_system in measured])
    pairs = list(combinations(range(systems), 2))
    of_images = np.array(
        [
            [
                ((one.images - other.images).var(ddof=1) - (one.residual + other.residual) / runs)
                for one, other in zip(measured[i], measured[j], strict=True)
            ]
            for i, j in pairs
        ]
    )
    found = p_values(values.mean(3), residual, np.maximum(of_images, 0) / images, images, old=False)
    for row, (i, j) in zip(found, pairs, strict=True):
        for trial in range(trials):
            table = [of_system[trial] for of_system in measured]
            assert row[trial] == pytest.approx(contrast([table[i], table[j]], [1, -1], table).p)


def test_components_of_variance():
    """By hand: cells 10, 12 (features 0) and 20, 26 (features 1), each with seeds 1 below and above
    its mean.
    """
    scores = np.array([[10.0, 12.0], [20.0, 26.0]])[..., None] + [-1, 1]
    rows = {name: row for name, *row in components.shares(scores)}
    variances = {"features": 70.0, "architecture": 6.0, "both together": 3.0, "seed": 2.0}
    for name, variance in variances.items():
        deviation, share, _, _ = rows[name]
        assert (deviation**2, share) == pytest.approx((variance, variance / 81))
    _, _, low, high = rows["features"]
    assert 0 <= low < 0.2  # with one degree of freedom hardly anything is known
    assert high > 0.99
