"""Power of a comparison, on data of known variances."""

import numpy as np
import pytest
from report.written import write_run

from captioning.metrics.contrasts import Measured, contrast
from experiments.power import Components, components, main

KNOWN = Components(seed=0.8, image=400.0, both=900.0)


def draw(generator, effects, seeds, images):
    """Scores of each system, by the model of the module."""
    shared = generator.normal(100, 30, size=images)
    return [
        Measured.from_values(
            effect
            + shared
            + generator.normal(scale=KNOWN.image**0.5, size=images)
            + generator.normal(scale=KNOWN.seed**0.5, size=(seeds, 1))
            + generator.normal(scale=KNOWN.both**0.5, size=(seeds, images))
        )
        for effect in effects
    ]


def test_components_of_known_variances():
    generator = np.random.default_rng(0)
    found = [components(draw(generator, [0, 3, 5], 4, 5000)) for _ in range(100)]
    for name in ("seed", "image", "both"):
        mean = np.mean([getattr(one, name) for one in found])
        assert mean == pytest.approx(getattr(KNOWN, name), rel=0.1)


@pytest.mark.parametrize("seeds, images", [(2, 400), (3, 400), (6, 2000)])
def test_the_difference_is_found_four_times_in_five(seeds, images):
    """By the interval of a comparison, and one that is just significant every other time."""
    generator, trials = np.random.default_rng(1), 1500
    found = []
    for probability in (0.8, 0.5):
        difference = KNOWN.detectable(seeds, images, probability)
        pairs = (draw(generator, [difference, 0.0], seeds, images) for _ in range(trials))
        found.append(np.mean([contrast(pair, (1, -1)).excludes_zero for pair in pairs]))
    assert found == pytest.approx([0.8, 0.5], abs=0.04)  # three standard errors


def test_without_seeds_it_is_the_paired_test_of_images():
    images = 1000
    paired = Components(0.0, 400.0, 0.0).detectable(3, images)
    assert paired == pytest.approx((1.962 + 0.842) * (2 * 400 / images) ** 0.5, rel=1e-3)


def test_the_fewest_seeds_and_images():
    seeds = KNOWN.seeds_for(2.5, 5000)
    assert KNOWN.detectable(seeds, 5000) <= 2.5 < KNOWN.detectable(seeds - 1, 5000)
    images = KNOWN.images_for(4.0, 5)
    assert KNOWN.detectable(5, images) <= 4.0 < KNOWN.detectable(5, images - 1)
    assert KNOWN.seeds_for(1.0, 1000) is None  # 1,000 images alone leave 2.5
    assert KNOWN.images_for(1.0, 3) is None  # and so do three seeds


def test_of_a_folder_of_runs(elsewhere, capsys):
    rows = {
        ("a", 1): [10.0, 40.0, 70.0],
        ("a", 2): [20.0, 40.0, 75.0],
        ("a", 3): [15.0, 45.0, 70.0],
        ("b", 1): [30.0, 35.0, 60.0],
        ("b", 2): [30.0, 25.0, 50.0],
        ("c", 1): [30.0, 25.0, 50.0],
    }
    for (model, seed), ciders in rows.items():
        write_run(elsewhere / "runs", model, seed, ciders=ciders, name="own")
    tables = ([row for (name, _), row in rows.items() if name == model] for model in "ab")
    pairs = [Measured.from_values(np.array(table)) for table in tables]
    main("runs", "1.0")
    (line,) = capsys.readouterr().out.splitlines()
    variances = components(pairs)
    assert f" {variances.detectable(2, 3):.1f} CIDEr" in line  # the fewest of both systems
    assert f"about {variances.detectable(2, 3, 0.5):.1f} is just significant" in line


def test_single_runs_tell_nothing(elsewhere, capsys):
    for model in "ab":
        write_run(elsewhere / "runs", model, 1, ciders=[10.0, 40.0, 70.0], name="own")
    main("runs")
    assert capsys.readouterr().out.startswith("own: no two systems")
