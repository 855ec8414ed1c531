"""The page on which a photograph is dropped, and what it says of it.

A photograph is posted as it is, with the settings in the query; the answer is a line of JSON for the photograph itself
and one for each captioner, sent as soon as that one has decoded (which, on any machine, takes less time than reading
its caption). A beam knows its words only in the end, so the page's script shows the words of all searches in turn.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from threading import BoundedSemaphore, Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from PIL import Image

from captioning.config.registry import PACKAGE
from captioning.errors import CaptioningError, quoted
from captioning.report.page.rendering import asset, environment
from captioning.serve.columns import Column, answers, shown
from captioning.serve.controls import choices, decoding_of
from captioning.serve.server import Handler, Refused
from captioning.serve.upload import MEGA, read_upload

EXAMPLES = PACKAGE.parent / "experiments" / "photographs"
"""Photographs of a checkout; a wheel has none, and its page does without."""
REPORT = "captioning.report.page"
KIND = "application/octet-stream"
"""Of what is posted: a page elsewhere cannot have a browser send it without asking here first."""


class Captions:
    """What all requests share.

    Args:
        columns: the captioners, at least one.
        megabytes: of a photograph's file at most.
        megapixels: of a photograph at most.
        waiting: photographs that wait at most while another is captioned.
    """

    def __init__(self, columns: Sequence[Column], megabytes: float, megapixels: float, waiting: int) -> None:
        self.columns, self.megabytes, self.megapixels = columns, megabytes, megapixels
        longest = min(column.longest for column in columns)
        self.choices = choices(columns[0].captioner.config["decoding"], longest)
        self.files = dict(self._files())
        self._places, self._turn = BoundedSemaphore(1 + waiting), Lock()

    def _files(self) -> Iterator[tuple[str, tuple[str, bytes]]]:
        """The page and what it loads: the style and the maps of the report's, and its own."""
        examples = {path.name: path.read_bytes() for path in sorted(EXAMPLES.glob("*.jpg"))}
        yield from ((f"/examples/{name}", ("image/jpeg", content)) for name, content in examples.items())
        page = (
            environment(__package__)
            .get_template("captions.html")
            .render(columns=self.columns, choices=self.choices, megabytes=self.megabytes, examples=examples)
        )
        yield "/", ("text/html; charset=utf-8", page.encode())
        style = [asset(REPORT, "page.css"), asset(__package__, "captions.css")]
        yield "/page.css", ("text/css; charset=utf-8", "\n".join(style).encode())
        script = [asset(REPORT, "maps.js"), asset(REPORT, "words.js"), asset(__package__, "captions.js")]
        yield "/page.js", ("text/javascript; charset=utf-8", "\n".join(script).encode())

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place in the queue.

        Raises:
            Refused: there is none left.
        """
        if not self._places.acquire(blocking=False):
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many photographs are waiting: try again in a moment")
        try:
            yield
        finally:
            self._places.release()

    def searching(self, asked: Any) -> list[Column]:
        """The columns with the search that a visitor asks for.

        Raises:
            CaptioningError: there is no such search, or not for all of them.
        """
        decoding = decoding_of(self.choices, asked)
        return [column.searching(decoding) for column in self.columns]

    def say(self, columns: Sequence[Column], image: Image.Image) -> Iterator[dict[str, Any]]:
        """The lines of the answer; one photograph at a time."""
        with self._turn:
            yield shown(columns, image)
            yield from answers(columns, image)


class CaptionsHandler(Handler):
    """Serves the page of `captions`."""

    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )

    def __init__(self, *connection: Any, captions: Captions) -> None:
        self._captions = captions
        super().__init__(*connection)

    def get(self) -> None:
        try:
            kind, content = self._captions.files[urlsplit(self.path).path]
        except (KeyError, ValueError) as error:
            raise Refused(HTTPStatus.NOT_FOUND, f"there is nothing here; the page is {self.server.url}") from error
        self.send(HTTPStatus.OK, kind, content, {"Cache-Control": "no-cache"})

    def post(self) -> None:
        self._check_sender()
        length = self._length()
        try:
            columns = self._captions.searching(self._settings())
        except CaptioningError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, error) from error
        with self._captions.place():
            image = read_upload(self.receive(length), self._captions.megapixels)
            lines = self._captions.say(columns, image)
            try:
                first = next(lines)
            except CaptioningError as error:  # pixels that have no meaning as colours
                raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, error) from error
            self.begin(HTTPStatus.OK, {"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
            self._write(first)
            try:
                for line in lines:
                    self._write(line)
            except (RuntimeError, CaptioningError) as error:  # such as a GPU whose memory is full
                self._write({"error": f"this photograph could not be captioned: {quoted(error)}"})

    def _write(self, line: dict[str, Any]) -> None:
        self.wfile.write(json.dumps(line).encode() + b"\n")

    def _check_sender(self) -> None:
        """Lets nobody post but the page itself: neither pages elsewhere nor forms."""
        if urlsplit(self.path).path != "/captions":
            raise Refused(HTTPStatus.NOT_FOUND, "photographs are posted to /captions")
        if self.headers["Origin"] != f"http://{self.headers['Host']}":
            raise Refused(HTTPStatus.FORBIDDEN, f"only the page {self.server.url} may post here")
        if self.headers["Content-Type"] != KIND:
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a photograph is posted as {KIND}")

    def _length(self) -> int:
        """What the photograph's file has, judged before it is read."""
        given = self.headers["Content-Length"] or ""
        if self.headers["Transfer-Encoding"] or not (given.isascii() and given.isdecimal() and len(given) < 20):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "a photograph is posted whole, with its Content-Length")
        if int(given) > self._captions.megabytes * MEGA:
            allowed = f"at most {self._captions.megabytes:g} MB are taken: scale it down"
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the photograph has {int(given) / MEGA:.1f} MB; {allowed}"
            )
        return int(given)

    def _settings(self) -> Any:
        try:
            (text,) = parse_qs(urlsplit(self.path).query, strict_parsing=True, max_num_fields=1)["settings"]
            return json.loads(text)
        except (KeyError, ValueError, RecursionError) as error:
            raise Refused(HTTPStatus.BAD_REQUEST, "the query has the settings as JSON, settings={}") from error
