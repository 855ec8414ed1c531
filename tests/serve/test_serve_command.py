"""The command: what it refuses before anything is served, what it imports, and how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from processes import PACKAGE
from serving import ask, served

from captioning.serve.__main__ import main
from captioning.serve.server import FolderHandler


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ([], "report=FOLDER or checkpoint=FILE"),
        (["report=a", "checkpoint=b"], "report=FOLDER or checkpoint=FILE"),
        (["report=absent"], "report=absent"),
        (["checkpoint=[absent.ckpt]"], "checkpoint=absent.ckpt"),
        (["report=.", "port=70000"], "port=70000"),
        (["report=.", "upload.megabytes=0"], "upload.megabytes=0"),
        (["report=.", "host=192.0.2.1"], "host=192.0.2.1"),
        (["report=.", "port={taken}"], "port=0"),
    ],
)
def test_refused(elsewhere: Path, refused: Callable[..., str], arguments: list[str], key: str) -> None:
    if "report=." in arguments:
        (elsewhere / "index.html").touch()
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert key in refused(main, *(argument.format(taken=other.getsockname()[1]) for argument in arguments))


def test_a_report_is_served_without_pytorch_until_a_signal_comes(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("page")
    # what is imported at the end of the process is printed by it
    code = (
        "import atexit, sys; from captioning.config.command import start; from captioning.serve.__main__ import main;"
        "atexit.register(lambda: print({'torch', 'lightning', 'PIL'} & set(sys.modules))); start(main)"
    )
    command = [sys.executable, "-c", code, "report=.", "port=0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = os.environ | {"PYTHONPATH": PACKAGE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) as process:
        line = process.stdout.readline()
        found = re.fullmatch(r"serving http://127\.0\.0\.1:(\d+)/; Ctrl-C ends it\n", line)
        assert found, line
        with socket.create_connection(("127.0.0.1", int(found[1]))) as connection:
            connection.sendall(f"GET / HTTP/1.0\r\nHost: localhost:{found[1]}\r\n\r\n".encode())
            assert connection.makefile("rb").read().endswith(b"\r\n\r\npage")
        process.send_signal(signal.SIGINT)
        printed, complained = process.communicate(timeout=600)
    assert (process.returncode, printed) == (130, "set()\n")
    assert "SIGINT" in complained
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


def test_a_visitor_who_goes_away_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "index.html").write_text("page")
    with served(partial(FolderHandler, directory=tmp_path)) as server:
        for content in (b"", b"GET", b"GET / HTTP/1.0\r\nHost: localhost\r\n"):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(content)
        assert ask(server, "/").status == 200
    assert "Traceback" not in capsys.readouterr().err
