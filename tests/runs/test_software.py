import importlib.util
import shutil
import subprocess
from pathlib import Path

from captioning.runs import software


def test_commit_is_this_checkouts() -> None:
    here = str(Path(software.__file__).parent)
    head = subprocess.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    found = software.commit()
    if head.returncode:
        assert found is None
    else:
        assert found is not None
        assert found.removesuffix("+") == head.stdout.strip()


def test_a_package_below_a_foreign_checkout_has_no_commit(tmp_path: Path) -> None:
    """As when it is installed into a virtual environment inside the user's own repository."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "theirs"], check=True)
    copy = shutil.copy(software.__file__, tmp_path)
    spec = importlib.util.spec_from_file_location("copied_provenance", copy)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.commit() is None
    subprocess.run([*git, "add", copy], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "now it is theirs"], check=True)
    assert module.commit() is not None
