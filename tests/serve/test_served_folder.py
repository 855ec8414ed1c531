"""A report over HTTP, its files and nothing else, and the command that serves it."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from processes import PACKAGE
from serving import ask, served

from captioning.serve.__main__ import main
from captioning.serve.server import FolderHandler, Server, report_folder

SECRET = b"not of this report"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    folder = home / "report"
    (folder / "photographs").mkdir(parents=True)
    (folder / "index.html").write_text("<p>ü")
    (folder / "photographs" / "ü 1.jpg").write_bytes(b"\xff\xd8")
    (folder / "table.csv").write_text("a")
    for secret in (home / "secret.txt", folder / ".hidden"):
        secret.write_bytes(SECRET)
    links = {"out.txt": home / "secret.txt", "outside": home, "circle": folder / "circle"}
    for name, target in (links | {"same.md": folder / "table.csv"}).items():
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "pipe.txt")
    return report_folder(str(folder))


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with served(partial(FolderHandler, directory=folder)) as server:
        yield server


FILES = {
    "/": ("text/html; charset=utf-8", "<p>ü".encode()),
    "/index.html?again": ("text/html; charset=utf-8", "<p>ü".encode()),
    "/photographs/%C3%BC%201.jpg": ("image/jpeg", b"\xff\xd8"),
    "/same.md": ("text/csv; charset=utf-8", b"a"),  # a link to a file of the folder
}
OUTSIDE = [
    *[
        "/absent.html",
        "/photographs",
        "/photographs/",
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%5csecret.txt",
    ],
    *["/photographs/..%2f..%2fsecret.txt", "//../secret.txt", "/photographs/../../secret.txt"],
    *[
        "/{root}/secret.txt",
        "{root}/secret.txt",
        "%2f{root}/secret.txt",
        "file://{root}/secret.txt",
    ],
    *[
        "http://127.0.0.1/../secret.txt",
        "secret.txt",
        "*",
        "/out.txt",
        "/outside/secret.txt",
        "/circle",
    ],
    *["/pipe.txt", "/.hidden", "/%00", "/%ff", "/" + 300 * "a", "/" + 5000 * "a/"],
]


def test_the_folders_files_and_nothing_outside_are_given(server: Server, folder: Path) -> None:
    for target, (kind, content) in FILES.items():
        found = ask(server, target)
        assert (found.status, found.headers["Content-Type"], found.content) == (200, kind, content)
        assert (found.headers["X-Content-Type-Options"], found.headers["Cache-Control"]) == (
            "nosniff",
            "no-cache",
        )
        head = ask(server, target, "HEAD")
        assert (head.status, head.headers["Content-Length"], head.content) == (
            200,
            str(len(content)),
            b"",
        )
    for target in OUTSIDE:
        found = ask(server, target.format(root=folder.parent))
        assert (found.status, SECRET in found.content) == (404, False), target
    known = {"If_Modified_Since": ask(server, "/table.csv").headers["Last-Modified"]}
    assert ask(server, "/table.csv", **known).status == 304
    os.utime(folder / "table.csv", (2e9, 2e9))  # written anew
    again = ask(server, "/table.csv", **known)
    assert (again.status, again.content) == (200, b"a")


def test_a_foreign_name_of_this_machine_is_refused(server: Server, folder: Path) -> None:
    """Other machines may know one that is open to them by any name."""
    hosts = ["evil.example", f"evil.example:{server.port}", "127.0.0.1:1", "localhost", "", None]
    assert {ask(server, "/", Host=host).status for host in hosts} == {403}
    assert ask(server, "/", Host=f"LOCALHOST:{server.port}").status == 200
    with served(partial(FolderHandler, directory=folder), host="0.0.0.0") as public:
        assert {ask(public, "/", Host=host).status for host in hosts} == {200}


def test_other_requests_are_refused_and_a_visitor_who_goes_away_is_no_error(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    for method in ("POST", "PUT", "OPTIONS", "TRACE"):
        assert ask(server, "/index.html", method, b"x", Content_Length="1").status == 405
    assert ask(server, "/" + 70_000 * "a").status == 414
    assert ask(server, "/", **{f"X{i}": "1" for i in range(200)}).status == 431
    for content in (b"", b"GET", b"GET / HTTP/1.0\r\nHost: localhost\r\n"):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(content)
    assert ask(server, "/").status == 200
    assert "Traceback" not in capsys.readouterr().err


REFUSED = {
    "report=a checkpoint=b": "report=FOLDER and checkpoint=FILE",
    "port=70000": "port=70000",
    "report=absent": "report=absent",
    "checkpoint=[absent.ckpt]": "checkpoint=absent.ckpt",
    "report=. upload.megabytes=0": "upload.megabytes=0",
    "report=. host=192.0.2.1": "host=192.0.2.1",
    "report=. port={taken}": "port=0",
}


def test_refused(elsewhere: Path, refused: Callable[..., str]) -> None:
    (elsewhere / "index.html").touch()
    with socket.create_server(("127.0.0.1", 0)) as other:
        for arguments, key in REFUSED.items():
            assert key in refused(main, *arguments.format(taken=other.getsockname()[1]).split())


@pytest.mark.parametrize(
    ("settings", "page", "imported"), [(["report=."], "page", "set()"), ([], "", None)]
)
def test_a_page_is_served_until_a_signal_comes(
    tmp_path: Path, settings: list[str], page: str, imported: str | None
) -> None:
    """A report without PyTorch; with neither report nor checkpoint the bundled captioner."""
    (tmp_path / "index.html").write_text("page")
    # what is imported at the end of the process is printed by it
    code = (
        "import atexit, sys; from captioning.config.command import start; from "
        "captioning.serve.__main__ import main;"
        "atexit.register(lambda: print({'torch', 'lightning', 'PIL'} & set(sys.modules))); "
        "start(main)"
    )
    command = [sys.executable, "-c", code, *settings, "port=0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = os.environ | {"PYTHONPATH": PACKAGE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) as process:
        line = process.stdout.readline()
        found = re.fullmatch(r"serving http://127\.0\.0\.1:(\d+)/; Ctrl-C ends it\n", line)
        assert found, line
        with socket.create_connection(("127.0.0.1", int(found[1]))) as connection:
            connection.sendall(f"GET / HTTP/1.0\r\nHost: localhost:{found[1]}\r\n\r\n".encode())
            answer = connection.makefile("rb").read().decode()
            assert answer.endswith(f"\r\n\r\n{page}") if page else "the bundled captioner" in answer
        process.send_signal(signal.SIGINT)
        printed, complained = process.communicate(timeout=600)
    assert process.returncode == 130
    assert imported is None or printed == f"{imported}\n"
    assert "SIGINT" in complained
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
