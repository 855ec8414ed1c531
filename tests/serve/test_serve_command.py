"""The command: what it refuses before anything is served, what it imports, and how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from serving import ask, served
from test_run import PACKAGE

from captioning.serve.__main__ import main
from captioning.serve.folder import FolderHandler


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], r"one of report=FOLDER and checkpoint=FILE says what is served: give one, and not both"),
        (["report=a", "checkpoint=b"], r"one of report=FOLDER and checkpoint=FILE"),
        (["report=absent"], r"report=absent has no index\.html: python -m captioning\.report .* writes it"),
        (["checkpoint=[absent.ckpt]"], r"checkpoint=absent\.ckpt is not there"),
        (["report=.", "port=70000"], r"port=70000 is not allowed; it must be a whole number from 0 to 65535"),
        (["report=.", "upload.megabytes=0"], r"upload\.megabytes=0 is not allowed"),
        (["report=.", "host=192.0.2.1"], r"host=192\.0\.2\.1 port=8000 cannot be listened at: "),
        (["report=.", "port={taken}"], r"cannot be listened at: Address already in use; port=0 takes any"),
    ],
)
def test_what_cannot_be_served(
    elsewhere: Path, refused: Callable[..., str], arguments: list[str], sentence: str
) -> None:
    if "report=." in arguments:
        (elsewhere / "index.html").touch()
    with socket.create_server(("127.0.0.1", 0)) as other:
        given = [argument.format(taken=other.getsockname()[1]) for argument in arguments]
        assert re.search(sentence, refused(main, *given))


def test_a_report_is_served_without_pytorch_until_a_signal_comes(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("page")
    # what is imported at the end of the process is printed by it
    code = (
        "import atexit, sys; from captioning.config.command import start; from captioning.serve.__main__ import main;"
        "atexit.register(lambda: print({'torch', 'lightning', 'PIL'} & set(sys.modules))); start(main)"
    )
    command = [sys.executable, "-c", code, "report=.", "port=0"]
    environment = os.environ | {"PYTHONPATH": PACKAGE}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        line = process.stdout.readline()
        found = re.fullmatch(r"serving http://127\.0\.0\.1:(\d+)/; Ctrl-C ends it\n", line)
        assert found, line
        with socket.create_connection(("127.0.0.1", int(found[1]))) as connection:
            connection.sendall(f"GET / HTTP/1.0\r\nHost: localhost:{found[1]}\r\n\r\n".encode())
            assert connection.makefile("rb").read().endswith(b"\r\n\r\npage")
        process.send_signal(signal.SIGINT)
        said, complained = process.communicate(timeout=600)
    assert (process.returncode, said) == (130, "set()\n")
    assert complained == "\nstopped by SIGINT: the page is served no more\n"
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


def test_a_visitor_who_goes_away_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "index.html").write_text("page")
    with served(lambda *connection: FolderHandler(*connection, folder=tmp_path)) as server:
        for content in (b"", b"GET", b"GET / HTTP/1.0\r\nHost: localhost\r\n"):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(content)
        assert ask(server, "/").status == 200
    assert "Traceback" not in capsys.readouterr().err
