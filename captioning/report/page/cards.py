"""What is to be known of one system: how it was configured and started, what its numbers come from, where it errs."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from captioning.config.settings import each_setting
from captioning.report.page.experiments import differences
from captioning.report.page.tested import Described, worst
from captioning.report.systems import System
from captioning.report.tested_runs import Run


@dataclass(frozen=True, slots=True)
class Card:
    """One system's.

    Attributes:
        command: that trains it, a seed after the other.
        settings: in which not all systems of the table agree.
        experiment: of its first run, None where it was not recorded.
        differences: from that experiment, setting by setting this system's and the experiment's; None where it cannot
            be composed anew.
        provenance: of its first run, by what each is called.
        signature: what a score depends on beside the captions, in the form of sacreBLEU's.
        mistakes: the photographs whose captions score least.
    """

    command: str
    settings: Mapping[str, str]
    experiment: str | None
    differences: Mapping[str, tuple[str, str]] | None
    provenance: Mapping[str, str]
    signature: str
    mistakes: Sequence[Described]


def common_settings(systems: Sequence[System]) -> dict[str, str]:
    """In which all systems of a table agree."""
    first, *others = (shown_settings(system) for system in systems)
    return {key: value for key, value in first.items() if all(each.get(key) == value for each in others)}


def shown_settings(system: System) -> dict[str, str]:
    """As they are typed, a part of the system by the name of its class."""
    return dict(sorted(_told(key, value) for key, value in system.runs[0].settings.items() if not _is_partial(key)))


def _told(key: str, value: str) -> tuple[str, str]:
    group, _, last = key.rpartition(".")
    value = value.strip("'")
    return (group, value.rpartition(".")[2]) if last == "_target_" else (key, value)


def _is_partial(key: str) -> bool:
    return key.endswith("._partial_")  # how a part is made, which says nothing of it


def card(
    place: int, system: System, common: Mapping[str, str], images: Sequence[Described], metric: str | None
) -> Card:
    """Of the system at a place of the table."""
    mine = [image for image in images if place in image.answers]
    found = differences(system.runs[0])
    return Card(
        command=_command(system),
        settings={key: value for key, value in shown_settings(system).items() if key not in common},
        experiment=system.runs[0].experiment,
        differences=found
        and {
            _told(key, ours)[0]: (_told(key, ours)[1], _told(key, theirs)[1])
            for key, (ours, theirs) in found.items()
            if not _is_partial(key)
        },
        provenance=_provenance(system.runs[0]),
        signature=_signature(system.runs[0], mine),
        mistakes=worst(mine, place, metric) if metric else [],
    )


def _command(system: System) -> str:
    run, seeds = system.runs[0], ",".join(str(run.seed) for run in system.runs)
    chosen = [] if run.experiment in (None, "null") else [f"experiment={run.experiment}"]
    words = [*chosen, f"model={run.model}", f"data={run.data}", f"seed={seeds}"]
    return f"python -m captioning.run {'-m ' if len(system.runs) > 1 else ''}{shlex.join(words)}"


def _provenance(run: Run) -> dict[str, str]:
    found = run.provenance
    sizes = ", ".join(f"{number:,} {name}" for name, number in found.parameters.items())
    values = {
        "commit": found.commit,
        "versions": ", ".join(f"{name} {version}" for name, version in found.versions.items()),
        "data digest": run.data_digest,
        "parameters": sizes,
        "device": found.device,
        "precision": found.precision,
        "seconds trained": found.seconds_trained and f"{found.seconds_trained:,.0f}",
        "decoding": _decoding(found.decoding),
    }
    return {name: str(value) for name, value in values.items() if value}


def _signature(run: Run, images: Sequence[Described]) -> str:
    counts = sorted({len(image.references) for image in images})
    versions = run.provenance.versions
    values = {
        "images": len(images),
        "references": "-".join(map(str, dict.fromkeys([counts[0], counts[-1]]))) if counts else None,
        "tokenizer": run.provenance.tokenizer,
        "decoding": _decoding(run.provenance.decoding),
        **{name: versions.get(name) for name in ("pycocoevalcap", "captioning")},
        "data": run.data_digest[:8],
    }
    return "|".join(f"{name}:{value}" for name, value in values.items() if value)


def _decoding(settings: Mapping[str, object]) -> str:
    """The search and what it was given, without its filters that are off."""
    search = str(settings.get("_target_", "")).rpartition(".")[2]
    given = [f"{key}={value}" for key, value in each_setting(dict(settings)) if key.rpartition(".")[2][:1] != "_"]
    return " ".join([search, *(each for each in given if each.partition("=")[2] not in ("0", "False", "[]", "None"))])
