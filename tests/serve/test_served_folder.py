"""A report over HTTP: its files, and nothing else."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from serving import ask, served

from captioning.serve.server import FolderHandler, Server, report_folder

SECRET = b"not of this report"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    (home / "secret.txt").write_bytes(SECRET)
    folder = home / "report"
    (folder / "photographs").mkdir(parents=True)
    (folder / "index.html").write_text("<p>ü")
    (folder / "photographs" / "ü 1.jpg").write_bytes(b"\xff\xd8")
    (folder / "table.csv").write_text("a")
    (folder / ".hidden").write_bytes(SECRET)
    (folder / "out.txt").symlink_to(home / "secret.txt")
    (folder / "outside").symlink_to(home)
    (folder / "circle").symlink_to(folder / "circle")
    (folder / "same.md").symlink_to(folder / "table.csv")
    os.mkfifo(folder / "pipe.txt")
    return report_folder(folder)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with served(partial(FolderHandler, directory=folder)) as server:
        yield server


@pytest.mark.parametrize(
    ("target", "kind", "content"),
    [
        ("/", "text/html; charset=utf-8", "<p>ü".encode()),
        ("/index.html?again", "text/html; charset=utf-8", "<p>ü".encode()),
        ("/photographs/%C3%BC%201.jpg", "image/jpeg", b"\xff\xd8"),
        ("/table.csv", "text/csv; charset=utf-8", b"a"),
        ("/same.md", "text/csv; charset=utf-8", b"a"),  # a link to a file of the folder
    ],
)
def test_what_the_folder_has(server: Server, target: str, kind: str, content: bytes) -> None:
    found = ask(server, target)
    assert (found.status, found.headers["Content-Type"], found.content) == (200, kind, content)
    assert found.headers["X-Content-Type-Options"] == "nosniff"
    head = ask(server, target, "HEAD")
    assert (head.status, head.headers["Content-Length"], head.content) == (200, str(len(content)), b"")


@pytest.mark.parametrize(
    "target",
    [
        *["/absent.html", "/photographs", "/photographs/", "/../secret.txt", "/%2e%2e/secret.txt", "/..%5csecret.txt"],
        *["/photographs/..%2f..%2fsecret.txt", "//../secret.txt", "/photographs/../../secret.txt"],
        *["/{root}/secret.txt", "{root}/secret.txt", "%2f{root}/secret.txt", "file://{root}/secret.txt"],
        *[
            "http://127.0.0.1/../secret.txt",
            "secret.txt",
            "*",
            "/out.txt",
            "/outside/secret.txt",
            "/circle",
            "/pipe.txt",
        ],
        *("/.hidden", "/%00", "/%ff", "/" + 300 * "a", "/" + 5000 * "a/"),
    ],
)
def test_nothing_outside_is_given(server: Server, folder: Path, target: str) -> None:
    found = ask(server, target.format(root=folder.parent))
    assert found.status == 404
    assert SECRET not in found.content


def test_a_report_that_is_written_anew_shows(server: Server, folder: Path) -> None:
    first = ask(server, "/table.csv")
    assert first.headers["Cache-Control"] == "no-cache"
    assert ask(server, "/table.csv", If_Modified_Since=first.headers["Last-Modified"]).status == 304
    (folder / "new").write_text("b")
    os.utime(folder / "new", (2e9, 2e9))
    (folder / "new").rename(folder / "table.csv")
    again = ask(server, "/table.csv", If_Modified_Since=first.headers["Last-Modified"])
    assert (again.status, again.content) == (200, b"b")
    (folder / "table.csv").write_text("a")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "localhost", "", None])
def test_a_foreign_name_of_this_machine_is_refused(server: Server, host: str | None) -> None:
    given = {"Host": host and host.format(port=server.port)}
    found = ask(server, "/", **given)  # type: ignore[arg-type]
    assert found.status == 403
    assert ask(server, "/", Host=f"LOCALHOST:{server.port}").status == 200


def test_other_machines_may_know_it_by_any_name(folder: Path) -> None:
    with served(partial(FolderHandler, directory=folder), host="0.0.0.0") as server:
        assert ask(server, "/", Host="experiments.example:80").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_is_taken(server: Server, method: str) -> None:
    assert ask(server, "/index.html", method, b"x", Content_Length="1").status == 405


def test_a_request_that_is_none(server: Server) -> None:
    assert ask(server, "/" + 70_000 * "a").status == 414
    assert ask(server, "/", **{f"X{i}": "1" for i in range(200)}).status == 431
