"""A report's folder, and nothing outside it."""

import os
import shutil
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from captioning.config.paths import given_path
from captioning.errors import CaptioningError
from captioning.serve.server import Handler, Refused

INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".yml": "application/yaml; charset=utf-8",
    ".yaml": "application/yaml; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".pdf": "application/pdf",
}
"""The same on every machine, which the standard library's are not; anything else is offered as a file to keep."""


def report_folder(setting: object) -> Path:
    """The folder that `captioning.report` has written, without symbolic links.

    Raises:
        CaptioningError: it has no page.
    """
    folder = given_path(setting)
    if not os.path.isfile(folder / INDEX):  # noqa: PTH113 - the method of `Path` raises for names that no file can have
        raise CaptioningError(
            f"report={setting!s:.200} has no {INDEX}: python -m captioning.report runs=FOLDER output={setting!s:.200} "
            "writes it"
        )
    return folder.resolve()


def find(folder: Path, target: str) -> Path:
    """The file in `folder` that a request's target names; of a folder in it the page that lies there.

    Raises:
        Refused: there is none, it is hidden, or it lies outside, whether by its name or behind a symbolic link.
    """
    absent = Refused(HTTPStatus.NOT_FOUND, "there is no such file in this report")
    root, *parts = unquote(target.partition("?")[0], errors="surrogateescape").split("/")
    if parts and not parts[-1]:
        parts[-1] = INDEX
    if root or not parts or not all(map(_is_plain, parts)):
        raise absent
    try:
        path = folder.joinpath(*parts).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle; what no file can be called
        raise absent from error
    if not path.is_relative_to(folder) or not path.is_file():  # opening a pipe would wait for ever
        raise absent
    return path


def _is_plain(part: str) -> bool:
    return bool(part) and not part.startswith(".") and not {"\0", "\\", os.sep} & set(part)


class FolderHandler(Handler):
    """Serves the files of `folder`; a browser asks each time whether one is still the same."""

    def __init__(self, *connection: Any, folder: Path) -> None:
        self._folder = folder
        super().__init__(*connection)

    def get(self) -> None:
        path = find(self._folder, self.path)
        try:
            file = path.open("rb")
        except OSError as error:
            raise Refused(HTTPStatus.FORBIDDEN, f"this file cannot be read: {error.strerror}") from error
        with file:
            found = os.fstat(file.fileno())
            headers = {"Cache-Control": "no-cache", "ETag": f'"{found.st_mtime_ns:x}-{found.st_size:x}"'}
            if self.headers["If-None-Match"] == headers["ETag"]:
                self.begin(HTTPStatus.NOT_MODIFIED, headers)
                return
            kind = TYPES.get(path.suffix.lower(), "application/octet-stream")
            self.begin(HTTPStatus.OK, {"Content-Type": kind, "Content-Length": str(found.st_size), **headers})
            if self.command != "HEAD":
                shutil.copyfileobj(file, self.wfile)
