"""Cards of the systems of a page: configuration and command, differences from the experiment, provenance, mistakes."""

import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from captioning.config.settings import composed_experiment, each_setting
from captioning.report.gallery import Gallery
from captioning.report.runs import Run, settings_as_text, system_settings
from captioning.report.systems import System

ABSENT = "nothing"
"""In place of a setting that only the run or only its experiment has, as of another version."""


def card(place: int, system: System, own: Mapping[str, str], gallery: Gallery) -> dict[str, Any]:
    """How a system was configured and started, where its numbers come from, and its mistakes."""
    run = system.runs[0]
    references = [len(image.references) for image in gallery.images if place in image.answers]
    return {
        "command": _command(system),
        "settings": own,
        "experiment": run.experiment,
        "differences": differences(run),
        "provenance": _provenance(run),
        "signature": _signature(run, references),
        "mistakes": gallery.worst(place),
    }


def shown_settings(system: System) -> dict[str, str]:
    """Settings as they are typed, a part by the name of its class."""
    return dict(sorted(_told(key, value) for key, value in system.runs[0].settings.items() if not _is_partial(key)))


def _told(key: str, value: str) -> tuple[str, str]:
    group, _, last = key.rpartition(".")
    value = value.strip("'")
    return (group, value.rpartition(".")[2]) if last == "_target_" else (key, value)


def _is_partial(key: str) -> bool:
    return key.endswith("._partial_")


def differences(run: Run) -> dict[str, tuple[str, str]] | None:
    """The settings in which a run differs from its experiment with its model: the run's, and the experiment's.

    None where an earlier version has not recorded the experiment, or this version's `conf` has no such files.
    """
    if run.experiment is None or (planned := _planned(run.experiment, run.model)) is None:
        return None
    keys = (key for key in sorted({*planned, *run.settings}) if not _is_partial(key))
    both = {key: (run.settings.get(key, ABSENT), planned.get(key, ABSENT)) for key in keys}
    return {
        _told(key, ours)[0]: (_told(key, ours)[1], _told(key, theirs)[1])
        for key, (ours, theirs) in both.items()
        if ours != theirs
    }


@cache
def _planned(experiment: str, model: str) -> Mapping[str, str] | None:
    composed = composed_experiment(experiment, model)
    return None if composed is None else system_settings(settings_as_text(composed))


def _command(system: System) -> str:
    """That trains it, a seed after the other."""
    run, seeds = system.runs[0], ",".join(str(run.seed) for run in system.runs)
    chosen = [] if run.experiment in (None, "null") else [f"experiment={run.experiment}"]
    words = [*chosen, f"model={run.model}", f"data={run.data}", f"seed={seeds}"]
    return f"python -m captioning.run {'-m ' if len(system.runs) > 1 else ''}{shlex.join(words)}"


def _provenance(run: Run) -> dict[str, str]:
    found = run.provenance
    values = {
        "commit": found.commit,
        "versions": ", ".join(f"{name} {version}" for name, version in found.versions.items()),
        "data digest": run.data_digest,
        "parameters": ", ".join(f"{number:,} {name}" for name, number in found.parameters.items()),
        "device": found.device,
        "precision": found.precision,
        "seconds trained": found.seconds_trained and f"{found.seconds_trained:,.0f}",
        "decoding": _decoding(found.decoding),
    }
    return {name: str(value) for name, value in values.items() if value}


def _signature(run: Run, references: Sequence[int]) -> str:
    """What a score depends on besides the captions, in the form of sacreBLEU's."""
    versions = run.provenance.versions
    values = {
        "images": len(references),
        "references": "-".join(map(str, sorted({min(references), max(references)}))) if references else None,
        "tokenizer": run.provenance.tokenizer,
        "decoding": _decoding(run.provenance.decoding),
        **{name: versions.get(name) for name in ("pycocoevalcap", "captioning")},
        "data": run.data_digest[:8],
    }
    return "|".join(f"{name}:{value}" for name, value in values.items() if value)


def _decoding(settings: Mapping[str, object]) -> str:
    """The search and its arguments, without filters that are off."""
    search = str(settings.get("_target_", "")).rpartition(".")[2]
    given = [f"{key}={value}" for key, value in each_setting(dict(settings)) if key.rpartition(".")[2][:1] != "_"]
    return " ".join([search, *(each for each in given if each.partition("=")[2] not in ("0", "False", "[]", "None"))])
