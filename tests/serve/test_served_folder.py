"""A report over HTTP, its files and nothing else, and the command that serves it."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from urllib.request import urlopen

import pytest
from processes import PACKAGE
from serving import ask, served
from support import called

from captioning.errors import Stopped
from captioning.machine import SIGNALS
from captioning.serve.__main__ import main
from captioning.serve.server import report_page

SECRET = b"not of this report"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
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
    return folder


@pytest.fixture(scope="module")
def server(folder):
    with served(report_page(str(folder))) as server:
        yield server


FILES = {
    "/": ("text/html; charset=utf-8", "<p>ü".encode()),
    "/index.html?again": ("text/html; charset=utf-8", "<p>ü".encode()),
    "/photographs/%C3%BC%201.jpg": ("image/jpeg", b"\xff\xd8"),
    "/table.csv": ("text/csv; charset=utf-8", b"a"),
    "/same.md": ("text/csv; charset=utf-8", b"a"),  # a link to a file of the folder
}
OUTSIDE = [
    "/absent.html",
    "/photographs",
    "/photographs/",
    "/../secret.txt",
    "/%2e%2e/secret.txt",
    "/photographs/..%2f..%2fsecret.txt",
    "//../secret.txt",
    "/{root}/secret.txt",
    "{root}/secret.txt",
    "%2f{root}/secret.txt",
    "http://127.0.0.1/../secret.txt",
    "/out.txt",
    "/outside/secret.txt",
    "/circle",
    "/pipe.txt",
    "/.hidden",
    "/%00",
    "/%ff",
]


def test_the_folders_files_and_nothing_outside_are_given(server, folder):
    for target, (kind, content) in FILES.items():
        answer = ask(server, target)
        assert (answer.status, answer.headers["Content-Type"], answer.content) == (
            200,
            kind,
            content,
        )
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-cache"
    for target in (*OUTSIDE, "/" + 300 * "a"):
        answer = ask(server, target.format(root=folder.parent))
        assert (answer.status, SECRET in answer.content) == (404, False), target


def test_a_foreign_name_of_this_machine_is_refused(server, folder):
    """Other machines may know one that is open to them by any name."""
    hosts = ["evil.example", f"evil.example:{server.port}", ""]
    assert {ask(server, "/", Host=host).status for host in hosts} == {400}
    assert ask(server, "/", Host=f"LOCALHOST:{server.port}").status == 200
    with served(report_page(str(folder)), host="0.0.0.0") as public:
        assert {ask(public, "/", Host=host).status for host in hosts} == {200}


def test_a_visitor_who_goes_away_is_no_error(server, caplog):
    for content in (b"", b"GET", b"GET / HTTP/1.0\r\nHost: localhost\r\n"):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(content)
    assert ask(server, "/", "POST", b"x", Content_Length="1").status == 405
    assert ask(server, "/").status == 200
    assert caplog.records == []


REFUSED = {
    "report=a checkpoint=b": "report=FOLDER and checkpoint=FILE",
    "port=70000": "port=70000",
    "report=absent": "report=absent",
    "checkpoint=[absent.ckpt]": "checkpoint=absent.ckpt",
    "report=. upload.megabytes=0": "upload.megabytes=0",
    "report=. host=192.0.2.1": "host=192.0.2.1",
    "report=. port={taken}": "port=0",
}


def test_refused(elsewhere, refused):
    (elsewhere / "index.html").touch()
    with socket.create_server(("127.0.0.1", 0)) as other:
        for arguments, key in REFUSED.items():
            assert key in refused(main, *arguments.format(taken=other.getsockname()[1]).split())


def test_a_signal_before_the_server_runs_ends_it(elsewhere, monkeypatch):
    (elsewhere / "index.html").touch()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    @contextmanager
    def interrupted():
        yield
        signal.raise_signal(signal.SIGINT)  # when the address was printed

    monkeypatch.setattr("captioning.serve.__main__.while_read", interrupted)
    try:
        with pytest.raises(Stopped, match="stopped by SIGINT: the page is no longer served"):
            called(main, "report=.", "port=0")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_report_is_served_without_pytorch_until_a_signal_comes(tmp_path):
    (tmp_path / "index.html").write_text("page")
    # what is imported at the end of the process is printed by it
    code = (
        "import atexit, sys; from captioning.config.command import start; from "
        "captioning.serve.__main__ import main;"
        "atexit.register(lambda: print({'torch', 'lightning'} & set(sys.modules))); "
        "start(main)"
    )
    command = [sys.executable, "-c", code, "report=.", "port=0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = os.environ | {"PYTHONPATH": PACKAGE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) as process:
        line = process.stdout.readline()
        address = re.fullmatch(r"serving (http://127\.0\.0\.1:\d+/); Ctrl-C ends it\n", line)
        assert address, line
        with urlopen(address[1]) as answer:
            assert answer.read() == b"page"
        process.send_signal(signal.SIGINT)
        printed, complained = process.communicate(timeout=600)
    assert process.returncode == 130
    assert printed == "set()\n"
    assert "SIGINT" in complained
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
