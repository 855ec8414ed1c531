"""The commit and the code that scores come from."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from captioning.runs import results


def test_commit_is_this_checkouts() -> None:
    here = str(Path(results.__file__).parent)
    head = subprocess.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    commit = results.commit()
    assert (commit or "").removesuffix("+") == head.stdout.strip()


def test_a_package_below_a_foreign_checkout_has_no_commit(tmp_path: Path) -> None:
    """As when it is installed into a virtual environment inside the user's own repository."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "theirs"], check=True)
    copy = shutil.copy(results.__file__, tmp_path)
    spec = importlib.util.spec_from_file_location("copied_results", copy)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.commit() is None
    subprocess.run([*git, "add", copy], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "now it is theirs"], check=True)
    assert module.commit() is not None


def test_every_source_is_in_the_digest_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "PACKAGE", tmp_path)
    found = set()
    for name, source in (("a.py", ""), ("a.py", "X = 1"), ("below/b.py", "X = 1")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
        found.add(results.code_digest.__wrapped__())
    assert len(found) == 3
