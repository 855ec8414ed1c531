"""Serve a web application with uvicorn, for this machine alone unless told otherwise."""

import ipaddress
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from captioning.config.types import given_path
from captioning.errors import CaptioningError, quoted

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.routing import BaseRoute, Mount
    from starlette.staticfiles import StaticFiles
except ImportError as error:
    message = "serve needs more packages: pip install 'captioning[serve]'"
    raise CaptioningError(message) from error

HEADERS = [
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-cache"),  # browsers ask each time whether a file has changed
]
INDEX = "index.html"
GRACE = 5  # seconds for the answers under way, after a signal


class PageServer(uvicorn.Server):
    """Listens as soon as it is constructed; `run` answers until a signal comes.

    `host` is a name or address of this machine; port 0 takes any free one; `policy` is the page's
    Content-Security-Policy.
    """

    def __init__(self, routes: Sequence[BaseRoute], policy: str, host: str, port: int):
        self.listener = _listen(host, port)
        address, self.port = self.listener.getsockname()[:2]
        bound = ipaddress.ip_address(address)
        self.local = bound.is_loopback
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{socket.gethostname() if bound.is_unspecified else name}:{self.port}/"
        # a foreign name of this machine alone could lead here from a page elsewhere (DNS rebinding)
        hosts = [name, "localhost", "127.0.0.1", "[::1]"] if self.local else ["*"]
        trusted = Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
        settings = uvicorn.Config(
            Starlette(routes=routes, middleware=[trusted]),
            headers=[*HEADERS, ("Content-Security-Policy", policy)],
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACE,
        )
        super().__init__(settings)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        with self.listener:
            super().run([self.listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((str(address[0]), port), family=family)
    except (OSError, ValueError) as error:  # the latter for impossible host names
        error.add_note(
            f"cannot listen at host={quoted(host)} port={port}; port=0 takes any free port"
        )
        raise


class ReportFiles(StaticFiles):
    """The files of a report; none that is hidden or outside it."""

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        if any(part.startswith(".") for part in Path(path).parts):
            return "", None
        try:
            return super().lookup_path(path)
        except OSError:  # circular links, long names
            return "", None


def report_page(setting: str) -> tuple[list[BaseRoute], str]:
    """Route to the files of a folder that `captioning report` has written, and their policy."""
    folder = given_path(setting)
    if not (folder / INDEX).is_file():
        raise CaptioningError(
            f"report={quoted(setting)} has no {INDEX}: captioning report runs=FOLDER "
            f"output={quoted(setting)} writes it"
        )
    return [Mount("/", ReportFiles(directory=folder, html=True))], "frame-ancestors 'none'"
