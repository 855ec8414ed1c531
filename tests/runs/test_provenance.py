"""The commit and the code that scores come from."""

import shutil
import subprocess

from captioning.runs import provenance


def test_the_commit_is_that_of_the_checkout_which_has_the_file(tmp_path, monkeypatch):
    """Not of a foreign one around it, as where it is installed into a virtual environment in the
    user's repository.
    """
    head = subprocess.run(
        ["git", "-C", str(provenance.PACKAGE), "rev-parse", "HEAD"], capture_output=True, text=True
    )
    assert (provenance.commit() or "").removesuffix("+") == head.stdout.strip()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "theirs"], check=True)
    copy = shutil.copy(provenance.__file__, tmp_path)
    monkeypatch.setattr(provenance, "__file__", copy)
    assert provenance.commit() is None
    subprocess.run([*git, "add", copy], check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "now it is theirs"], check=True)
    assert provenance.commit() is not None


def test_every_source_is_in_the_digest_of_the_code(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    found = set()
    for name, source in (("a.py", ""), ("a.py", "X = 1"), ("below/b.py", "X = 1")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
        found.add(provenance.code_digest.__wrapped__())
    assert len(found) == 3
