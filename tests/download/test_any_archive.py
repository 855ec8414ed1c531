"""Archives of any content: what they hold, or a sentence, and nothing outside the folder."""

import io
import tempfile
import warnings
import zipfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from captioning.errors import CaptioningError
from captioning.transfer.unzip import unpack

MEMBERS = {"Photographs": "images", "splits/a.json": "a.json"}
CONTENTS = [b"", b"{}", b"one" * 100, bytes(3000)]
METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9)  # where zipfile ends a name
parts = st.one_of(texts, st.sampled_from(["a", "b", "..", ".", "x.part", "C:", "n" * 260, "\n", "CON"]))
names = st.one_of(
    st.sampled_from(
        ["Photographs/1", "Photographs/below/2", "splits/a.json", "Photographs", "Photographs/1/3", "splits/a.json/x"]
    ),
    st.lists(parts, min_size=1, max_size=4).map(lambda parts: "/".join(["Photographs", *parts])),
    texts.filter(bool),
)
members = st.lists(st.tuples(names, st.sampled_from(CONTENTS), st.sampled_from(METHODS)), max_size=4)
damages = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=3)
headers = st.lists(
    st.tuples(st.sampled_from([b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"]), st.integers(4, 45), st.integers(0, 255)),
    max_size=2,
)


def zipped(members: list[tuple[str, bytes, int]]) -> bytearray:
    content = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(content, "w") as archive:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, member, method in [("Photographs/0", b"one", 0), ("splits/a.json", b"{}", 8), *members]:
            archive.writestr(name, member, method)
    return bytearray(content.getvalue())


@given(members, damages, headers, st.floats(0, 1) | st.just(1))
def test_any_archive(
    members: list[tuple[str, bytes, int]],
    damages: list[tuple[float, int]],
    headers: list[tuple[bytes, int, int]],
    kept: float,
) -> None:
    """Bytes anywhere are changed, and in the headers, which are few; and the end is cut off."""
    archive = zipped(members)
    for place, byte in damages:
        archive[int(place * len(archive))] = byte
    for header, place, byte in headers:
        where = archive.find(header) + place
        archive[where % len(archive)] = byte
    with tempfile.TemporaryDirectory() as home:
        path, folder = Path(home, "archive.zip"), Path(home, "data")
        path.write_bytes(archive[: round(kept * len(archive))])
        folder.mkdir()
        try:
            unpack(path, MEMBERS, folder)
        except (CaptioningError, zipfile.BadZipFile, OSError) as error:
            said = str(error)
            assert "\n" not in said
            assert len(said) < 900
        else:
            assert any((folder / "images").rglob("*"))
            assert (folder / "a.json").exists()
        found = {file: file.read_bytes() for file in Path(home).rglob("*") if file.is_file() and file.suffix != ".part"}
        found.pop(path)
        assert all(file.relative_to(folder).parts[0] in MEMBERS.values() for file in found)
        assert all(content in [b"one", *CONTENTS] for content in found.values())
