"""Parsing of JSON and of lines, with the places of their errors, and what is done about these.

Errors name the file and the position:
`dataset.json: images[17].sentences[2].raw=3: must be a valid string`.
Wrong entries are left out where that is asked for.
"""

import ast
import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_types import MaxLen
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from captioning.config.types import format_errors
from captioning.data.readers.groups import add_groups
from captioning.data.readers.options import options
from captioning.errors import CaptioningError
from captioning.files import (
    LARGEST,
    LONGEST_LINE,
    MAX_CHARACTERS,
    open_bounded,
    read_bytes,
    read_gzip,
)

T = TypeVar("T")
Text = Annotated[str, MaxLen(MAX_CHARACTERS)]
ImageId = int | Text
QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
LIST = re.compile(rf"\[\s*(?:{QUOTED}[\s,]*)+\]", re.DOTALL)  # NumPy's has no commas


@contextmanager
def or_skip() -> Iterator[None]:
    """Leave out a wrong entry and list its error, if the options of reading have a list for it."""
    try:
        yield
    except (CaptioningError, ValidationError) as error:
        skipped = options().skipped
        if skipped is None:
            raise
        skipped.append(error)


@contextmanager
def at(location: object) -> Iterator[None]:
    """Name a file, or a place in it, in errors about its content, also of entries left out."""
    skipped = options().skipped
    before = len(skipped or ())
    try:
        yield
    except (CaptioningError, ValidationError, UnicodeDecodeError) as error:
        error.add_note(str(location))
        raise
    for entry in (skipped or ())[before:]:
        if not any(str(location) in note for note in getattr(entry, "__notes__", ())):
            entry.add_note(str(location))


def reason(error: Exception) -> str:
    """Why an entry was left out, after its places."""
    fault = format_errors("", error.errors()) if isinstance(error, ValidationError) else str(error)
    return "".join(f"{note}: " for note in getattr(error, "__notes__", ())) + fault


def read_json(path: Path, layout: type[T], name: str) -> T:
    """Parse a JSON file into `layout`, which errors call `name`."""
    with at(f"{path}, read as {name}"):
        return parse_json(json_text(path), layout)


def parse_json(text: str | bytes, layout: type[T]) -> T:
    """Parse the text of a JSON file, see `read_json`."""
    adapter = TypeAdapter(layout)
    while True:
        try:
            file = adapter.validate_json(text, strict=True)
            break
        except ValidationError as error:
            if options().skipped is None:
                raise
            text = _without_faulty(adapter, text, error)
    if hasattr(file, "images"):  # of COCO's or Karpathy's layout
        add_groups(file.images, lambda: from_json(text)["images"])
    return file


def _without_faulty(adapter: TypeAdapter[Any], text: str | bytes, error: ValidationError) -> bytes:
    """The JSON without the entries that do not fit.

    They are those of the list with the first error; their errors are listed.
    """
    location = error.errors()[0]["loc"]
    depth = next((number for number, key in enumerate(location[:2]) if isinstance(key, int)), None)
    if depth is None:  # the file has another layout
        raise error
    content = from_json(text)
    emptied = {}
    if depth:
        emptied = {key: [] if isinstance(value, list) else value for key, value in content.items()}

    def around(entries: list[Any], rest: Mapping[Any, Any]) -> bytes:
        return to_json({**rest, location[0]: entries} if depth else entries)

    entries, good = content[location[0]] if depth else content, []
    for position, entry in enumerate(entries):
        with or_skip():
            try:
                adapter.validate_json(around([entry], emptied), strict=True)
            except ValidationError as wrong:
                faults = wrong.errors()
                for fault in faults:
                    fault["loc"] = (*location[:depth], position, *fault["loc"][depth + 1 :])
                raise CaptioningError(format_errors("", faults)) from wrong
            good.append(entry)
    if not good and len(entries) > 1:
        raise error
    return around(good, content if depth else {})


def json_text(path: Path) -> str:
    """Decode a JSON file in any of its encodings."""
    content = read_bytes(path)
    return content.decode(json.detect_encoding(content))


def has_list(text: str, name: str) -> bool:
    """Return True if a JSON object has a list called `name`; a search is faster than parsing."""
    return re.search(rf'"{name}"\s*:\s*\[', text) is not None


def parse_json_lines(lines: Iterable[tuple[str, str]], layout: type[T]) -> Iterator[T]:
    """Parse lines with their places, see `read_lines`, each as JSON."""
    adapter = TypeAdapter(layout)
    for location, line in lines:
        try:
            value = adapter.validate_json(line, strict=True)
        except ValidationError:
            with or_skip(), at(location):
                raise
        else:
            yield value


def read_lines(path: Path) -> list[tuple[str, str]]:
    """The `lines` of a file that may be a stranger's."""
    return list(lines(path, LARGEST))


def lines(path: Path, largest: float) -> Iterator[tuple[str, str]]:
    """The non-blank lines of a UTF-8 text or of its `.gz`, each with its place, `FILE, line 3`.

    Only line feeds end a line, because some characters that Python treats as line ends occur in
    captions; in a text without any, carriage returns do, as on old Macs. A text may have at most
    `largest` bytes.
    """
    packed = path.suffix == ".gz"
    with BytesIO(read_gzip(path)) if packed else open_bounded(path, largest) as file:
        parts: Iterable[bytes] = iter(partial(file.readline, LONGEST_LINE), b"")
        first = file.readline(LONGEST_LINE).removeprefix(BOM_UTF8)
        if first.endswith(b"\n"):
            parts = chain([first], parts)
        else:
            content = read_gzip(path) if packed else read_bytes(path)
            parts = content.removeprefix(BOM_UTF8).split(b"\r")
        for number, part in enumerate(parts, start=1):
            location = f"{path}, line {number}"
            try:
                line = part.decode()
            except UnicodeDecodeError as error:
                error.add_note(f"{location} is not UTF-8; save the file as UTF-8")
                raise
            if line.strip():
                yield location, line.removesuffix("\n").removesuffix("\r")


def _parse_list(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # Python's quotes, or NumPy's blanks and line breaks
        return [ast.literal_eval(item) for item in re.findall(QUOTED, " ".join(text.split()))]


def are_captions(cells: Sequence[Any]) -> bool:
    """Whether cells are captions that need no further check, as most are."""
    return all(
        type(cell) is str and cell and "[" not in cell and len(cell) <= MAX_CHARACTERS
        for cell in cells
    )


def captions_of(cells: Sequence[Any]) -> list[Any]:
    """The captions of some cells, of which each may be a list, and one of several empty."""
    captions = []
    for cell in cells if len(cells) == 1 else filter(bool, cells):
        if isinstance(cell, str) and LIST.fullmatch(cell.strip()):
            with suppress(ValueError, SyntaxError):
                cell = _parse_list(cell)
        captions += cell if isinstance(cell, list) else [cell]
    return captions
