import shutil
import subprocess
import sys
from pathlib import Path

import captioning
from captioning.training.provenance import commit

PACKAGE = Path(captioning.__file__).parent


def test_commit_is_this_checkouts() -> None:
    head = subprocess.run(["git", "-C", str(PACKAGE), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        assert commit() is None
    else:
        found = commit()
        assert found is not None
        assert found.removesuffix("+") == head.stdout.strip()


def test_a_package_below_a_foreign_checkout_has_none(tmp_path: Path) -> None:
    """As when it is installed into a virtual environment inside the user's own repository."""
    shutil.copytree(PACKAGE, tmp_path / "captioning", ignore=shutil.ignore_patterns("__pycache__"))
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "theirs"], check=True)
    code = "from captioning.training import provenance as p; print(p.__file__, p.commit())"
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.split()
    assert printed == [str(tmp_path / "captioning" / "training" / "provenance.py"), "None"]
