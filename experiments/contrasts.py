"""Differences between recorded systems, a row each, as a page tells them.

    python experiments/contrasts.py experiments/attention/contrasts.csv [METEOR or another score]

A row of the file has the text of its contrast, its systems and their weights. A system is a pattern
of the folders of its runs below `experiments`, such as `zoo_flickr8k/sat_soft-seed?`. The weights
`1 -1` stand for a difference of two systems, `1 -1 -1 1` for the change of one.

Prints Markdown: the weighted sum with a 95 % interval that contains test images and training
(`captioning.metrics.contrasts`), p, and p after Holm's correction for all rows of the file. The
training variance of a system is moderated by, or taken from, the systems with the same references
in all such files. A record without references has the scores of its captions, whose mean must be
the score, as that of CIDEr is. A column `paired` of the file may name a setting: runs with equal
values of it belong together, such as those trained on the same subset of the images.

The last column names what differs between the systems with positive weights and those with negative
ones, in their order: settings, `commit` if the code that training reads is not the same, and
`device`. It is empty where there are not as many of both.
"""

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from captioning.config.registry import CONF
from captioning.config.types import Config
from captioning.errors import CaptioningError
from captioning.files import markdown_table
from captioning.metrics.contrasts import Measured, contrast, corrected, measure
from captioning.metrics.scorer import Scorer
from captioning.metrics.table import HEADLINE, METRICS
from captioning.report.comparison import Test
from captioning.report.runs import Run, find_runs, in_pairs, system_settings
from captioning.runs.folders.choices import PLACES
from captioning.runs.settings import differing, is_in

HERE = Path(__file__).parent
with (HERE / "training_code.csv").open(encoding="utf-8", newline="") as file:
    CODE = {row["commit"]: row["code"] for row in csv.DictReader(file)}
"""A digest of what a training reads, by commit."""


def read(pattern: str) -> list[Run]:
    """The runs of a system, one or more."""
    runs = [run for folder in sorted(HERE.glob(pattern)) for run in find_runs(folder)[0]]
    if not runs:
        raise CaptioningError(f"there is no tested run {pattern} below {HERE}")
    return runs


def digest_of(runs: Sequence[Run]) -> str:
    """That of the file of references, which runs with other training images share, or else of the
    data.
    """
    provenance = runs[0].provenance
    return str(provenance.references["sha256"] if provenance.references else provenance.data_digest)


def score_of(
    runs: Sequence[Run], score: str, tests: dict[str, Test], paired: str | None = None
) -> Measured:
    """The score of a system; `tests` keeps the scorer of each file of references.

    Runs with equal values of the setting `paired` belong together.
    """
    runs, shared = in_pairs(runs, paired)
    captions = [{line.image_id: line for line in run.captions} for run in runs]
    digest = digest_of(runs)
    if not runs[0].provenance.references:
        images = sorted(captions[0], key=str)
        values = np.array([[lines[image].scores[score] for image in images] for lines in captions])
        return replace(Measured.from_values(values.astype(float)), test=digest, pairs=shared)
    if digest not in tests:
        references = {image: line.references for image, line in captions[0].items()}
        metric = next(m.name for m in METRICS.values() if score in {one.name for one in m.scores})
        tests[digest] = Test(references, Scorer(list(references.values()), [metric]))
    test = tests[digest]
    scored = [test.score([lines[image] for image in test.references]) for lines in captions]
    return measure(scored, test=digest, pairs=shared)[score]


@cache
def composed_experiment(experiment: str, model: str) -> Config | None:
    """Compose an experiment with one of its models; `PLACES` keep their own names.

    The experiment `null` has the defaults. None where there are no such files, or they have
    settings without a value.
    """
    system = model.removesuffix("_small")
    size = "published" if system == model else "small"
    chosen = {"model": system} | ({} if experiment == "null" else {"experiment": experiment})
    if not all((CONF / group / f"{name}.yaml").is_file() for group, name in chosen.items()):
        return None
    overrides = [*(f"{key}={name}" for key, name in chosen.items()), f"model.size={size}"]
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            loader = GlobalHydra.instance().config_loader()
            config = loader.load_configuration("config", overrides, RunMode.RUN)
            with open_dict(config):
                config.choices = {"model": model, "data": config.hydra.runtime.choices["data"]}
                del config.hydra, config.logger
                for key in PLACES:
                    OmegaConf.update(config, key, key)
            return OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException):
        return None


def settings(run: Run) -> dict[str, str]:
    """Settings of a run that are not 0 or false; what it was recorded without has its default."""
    composed = composed_experiment(run.experiment, run.model)
    defaults = system_settings(composed) if composed else {}
    nulls = [key for key, value in run.recorded.items() if value is None]
    known = {key: text for key, text in defaults.items() if not is_in(key, nulls)} | run.settings
    plain = {
        key: text
        for key, text in known.items()
        if key != "name" and text not in ("0", "0.0", "False")
    }
    commit = str(run.provenance.commit).removesuffix("+")
    device, _, _ = run.provenance.device.partition(",")
    return plain | {"commit": CODE.get(commit, commit), "device": device}


def changes(one: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    """The settings in which two systems differ; a part that is another class, by its group."""
    keys = differing(one, other, "")
    parts = [key.removesuffix("._target_") for key in keys if key.endswith("._target_")]
    changed = {*parts, *(key for key in keys if not is_in(key, parts))}
    return {key for key in changed if not is_in(key.rpartition(".")[0], parts)}


def differ_in(row: Sequence[tuple[str, float]], set_as: Mapping[str, dict[str, str]]) -> str:
    """Settings in which the systems of positive weight differ from those of negative weight."""
    ours = [name for name, weight in row if weight > 0]
    theirs = [name for name, weight in row if weight < 0]
    if len(ours) != len(theirs):
        return ""
    found = [changes(set_as[one], set_as[other]) for one, other in zip(ours, theirs, strict=True)]
    return ", ".join(sorted(set().union(*found)))


def read_rows(path: Path) -> tuple[list[dict[str, str]], list[str]]:
    """The rows of a file, and all systems that they name."""
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    return rows, list(dict.fromkeys(name for row in rows for name in row["systems"].split()))


def table(path: Path, score: str) -> str:
    rows, patterns = read_rows(path)
    tests: dict[str, Test] = {}
    runs = {name: read(name) for name in patterns}
    systems = {name: score_of(each, score, tests) for name, each in runs.items()}
    # of every recorded file, so that a contrast has one interval on all pages
    known = {system.test for system in systems.values()}
    named = [name for file in sorted(HERE.glob("*/contrasts*.csv")) for name in read_rows(file)[1]]
    for name in dict.fromkeys(named):
        if name not in systems and digest_of(others := read(name)) in known:
            systems[name] = score_of(others, score, tests)
    set_as = {name: settings(each[0]) for name, each in runs.items()}
    family = {}
    for row in rows:
        names = row["systems"].split()
        chosen = [systems[name] for name in names]
        weights = [float(Fraction(weight)) for weight in row["weights"].split()]
        seeds = " ".join(str(system.runs) for system in chosen)
        changed = differ_in(list(zip(names, weights, strict=True)), set_as)
        if key := row.get("paired"):
            chosen = [score_of(runs[name], score, tests, key) for name in names]
        family[row["contrast"], seeds, changed] = contrast(chosen, weights, systems.values())
    cells = [
        [
            text,
            seeds,
            f"{found.difference:+.1f} [{found.low:+.1f}, {found.high:+.1f}]",
            f"{found.p:.4f}",
            f"{found.adjusted:.3f}",
            changed,
        ]
        for (text, seeds, changed), found in corrected(family).items()
    ]
    heads = ["contrast", "seeds", f"{score} [95 %]", "p", "corrected", "differ in"]
    return markdown_table(heads, cells)


if __name__ == "__main__":
    print(table(Path(sys.argv[1]), *(sys.argv[2:] or [HEADLINE])))
