import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from captioning.config.explain import explain
from captioning.data.example import Example, Reference
from captioning.data.folder import PhotographFolder
from captioning.errors import CaptioningError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "photographs"
    for name in ("z.JPG", "b/a.png", "b/c.webp", "b/notes.txt", ".hidden.png", ".hidden/a.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_photographs_alone(folder: Path) -> None:
    names = ["b/a.png", "b/c.webp", "z.JPG"]
    assert PhotographFolder.read(folder, None) == PhotographFolder([Example(n, folder / n, ()) for n in names], 0)


def test_references_of_some_and_of_others(folder: Path) -> None:
    file = folder.parent / "captions.json"
    images = [{"id": 5, "file_name": "b/c.webp"}, {"id": 3, "file_name": "c.webp"}, {"id": 4, "file_name": "no.jpg"}]
    annotations = [{"image_id": each["id"], "caption": f"Dog {each['id']}."} for each in images]
    file.write_text(json.dumps({"images": images, "annotations": annotations}))
    found = PhotographFolder.read(folder, file)
    dog = Example(5, folder / "b/c.webp", (Reference("Dog 5.", ("dog", "5")),))
    assert found.examples == [Example("b/a.png", folder / "b/a.png", ()), dog, Example("z.JPG", folder / "z.JPG", ())]
    assert found.absent == 2


@pytest.mark.parametrize(
    ("name", "content", "kind", "named"),
    [
        ("captions.csv", "image,caption\nz.jpg,A dog.\n", CaptioningError, "no photograph in common"),
        ("captions.csv", "image,caption\nb/a.png,A dog.\nb//a.png,A cat.\n", CaptioningError, "occurs twice"),
        ("captions.json", '[{"image_id": 1, "caption": "A dog."}]', ValidationError, "captions.json"),
        ("captions.json", '{"info": 1}', ValidationError, "images"),
        ("captions.txt", "z.JPG is a dog", CaptioningError, "image,caption"),
    ],
)
def test_refused(folder: Path, name: str, content: str, kind: type[Exception], named: str) -> None:
    file = folder.parent / name
    file.write_text(content)
    with pytest.raises(kind) as caught:
        PhotographFolder.read(folder, file)
    assert named in explain(caught.value)


def test_a_folder_without_photographs(folder: Path) -> None:
    (folder / "empty" / ".hidden").mkdir(parents=True)
    with pytest.raises(CaptioningError, match="no photographs"):
        PhotographFolder.read(folder / "empty", None)
