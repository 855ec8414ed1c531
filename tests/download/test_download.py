"""The command, from servers with miniatures of the data sets."""

import functools
import hashlib
import io
import json
import shutil
import socket
import zipfile

import pytest
from hydra.utils import instantiate
from PIL import Image
from refusals import refuses
from server import Site, serving
from support import composed

from captioning.data.readers.reading import run_reader
from captioning.download.__main__ import SOURCES, main
from captioning.errors import CaptioningError

DATA_SETS = sorted(path.stem for path in (SOURCES / "data").glob("[!_]*.yaml"))
FOLDERS = {"flickr8k": ["images"], "flickr30k": ["images"], "coco": ["train2014", "val2014"]}
LAYOUT = {
    data: {f"dataset_{data}.json", *(f"{folder}/{i}.jpg" for folder in folders for i in range(5))}
    for data, folders in FOLDERS.items()
}
"""With a fifth photograph that no split names, as there are in Flickr's archives."""
ANNOTATIONS = {f"annotations/captions_{part}2014.json" for part in ("train", "val")}
LAYOUT["coco"] |= ANNOTATIONS


def zipped(files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, file in files.items():
            archive.writestr(name, file)
    return content.getvalue()


def said(animal):
    return {"raw": f"A {animal} runs .", "tokens": ["a", animal, "runs"]}


def splits(folders):
    images = [
        {"filename": f"{i}.jpg", "imgid": 4 * k + i, "split": split, "sentences": [said(animal)]}
        | ({"filepath": folder} if folder else {})
        for k, (folder, animal) in enumerate(zip(folders, ("dog", "cat"), strict=False))
        for i, split in enumerate(("train", "train", "val", "test"))
    ]
    return json.dumps({"images": images}).encode()


def photographs(folder):
    files = {f"__MACOSX/{folder}/._0.jpg": b"of a file system", f"{folder}/": b""}
    for i in range(5):
        content = io.BytesIO()
        Image.new("RGB", (60, 50), (40 * i, 9, 9)).save(content, "jpeg")
        files[f"{folder}/{i}.jpg"] = content.getvalue()
    return zipped(files)


@pytest.fixture(scope="module")
def archives():
    """By their names at the source, inside as they are there."""
    flickr, coco = splits((None,)), splits(("train2014", "val2014"))
    jsons = {
        "dataset_coco.json": coco,
        "dataset_flickr8k.json": flickr,
        "dataset_flickr30k.json": flickr,
    }
    kinds = ("captions", "instances", "person_keypoints")
    annotations = {
        f"annotations/{kind}_{part}2014.json": b"{}" for kind in kinds for part in ("train", "val")
    }
    return {
        "caption_datasets.zip": zipped(jsons),
        "Flickr8k_Dataset.zip": photographs("Flicker8k_Dataset"),
        "flickr30k-images.zip": photographs("flickr30k-images"),
        "train2014.zip": photographs("train2014"),
        "val2014.zip": photographs("val2014"),
        "annotations_trainval2014.zip": zipped(annotations),
    }


@pytest.fixture
def site(archives):
    with serving(Site(files={f"/{name}": content for name, content in archives.items()})) as site:
        yield site


@functools.cache
def published(data):
    return composed(f"data={data}", name="download", folder=SOURCES).data.archives


def overrides(site, data):
    """The data set's own configuration with this server instead, and the sizes and checksums of its
    files.
    """
    given = [f"data={data}", "connection.backoff=0", "connection.retries=1"]
    for key, archive in published(data).items():
        path = "/" + archive.url.rpartition("/")[2]
        content = site.files[path]
        algorithm = archive.checksum.partition(":")[0]
        given += [
            f"data.archives.{key}.url={site.address}{path}",
            f"data.archives.{key}.size={len(content)}",
            f"data.archives.{key}.checksum={algorithm}:"
            f"{hashlib.new(algorithm, content).hexdigest()}",
        ]
    return given


def composed_and_run(*overrides):
    main.__wrapped__(composed(*overrides, name="download", folder=SOURCES))


def download(site, data, folder, *more):
    """The files that are asked for."""
    before = len(site.requests)
    composed_and_run(*overrides(site, data), f"root={folder}", *more)
    return [path.removeprefix("/") for path, _ in site.requests[before:]]


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("data", DATA_SETS)
def test_a_run_reads_what_is_downloaded(site, tmp_path, data, capsys):
    asked = download(site, data, tmp_path)
    assert len(asked) == len(set(asked))
    assert files(tmp_path) == LAYOUT[data]
    count = 4 * (2 if data == "coco" else 1)
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(f"{count} photographs of dataset_{data}.json are in {tmp_path}")
    assert out[1] == f"captioning run data={data} data.root={tmp_path}"

    reader = instantiate(composed(f"data={data}", f"data.root={tmp_path}").data.reader)
    examples = run_reader(reader)
    sizes = {split: len(part) for split, part in examples.items()}
    assert sizes == {"train": count / 2, "val": count / 4, "test": count / 4}
    assert examples["test"][0].path.exists()

    assert download(site, data, tmp_path) == []
    assert capsys.readouterr().out.count("already there\n") == len(asked)
    assert files(tmp_path) == LAYOUT[data]


def test_archives_got_by_other_means_or_kept(site, archives, tmp_path):
    names, photographs = (
        ("caption_datasets.zip", "Flickr8k_Dataset.zip"),
        tmp_path / "Flickr8k_Dataset.zip",
    )
    for name in names:
        (tmp_path / name).write_bytes(archives[name])
    photographs.write_bytes(damaged := archives[photographs.name][:-1] + b"!")
    with refuses(r"Flickr8k_Dataset\.zip has md5:.*delete it"):
        download(site, "flickr8k", tmp_path)
    assert photographs.read_bytes() == damaged
    photographs.unlink()
    assert download(site, "flickr8k", tmp_path, "keep_archives=true") == [photographs.name]
    assert files(tmp_path) == {*LAYOUT["flickr8k"], photographs.name}
    shutil.rmtree(tmp_path / "images")
    assert download(site, "flickr8k", tmp_path) == []
    assert files(tmp_path) == LAYOUT["flickr8k"]


def test_what_is_missing_must_fit_the_disk(site, tmp_path):
    """Of 9 PB and 5 PB, and the larger archive or both beside them."""
    sizes = [f"data.archives.train2014.size={9 * 10**15}"]
    sizes += [f"data.archives.val2014.size={5 * 10**15}"]
    cases = (("false", 0, "2300000"), ("true", 0, "2800000"), ("false", 10**12, "2299900"))
    for keep, part, gigabytes in cases:
        with (tmp_path / "train2014.zip.part").open("wb") as file:
            file.truncate(part)  # sparse
        told = rf"^{gigabytes}\d\.00 GB are needed .* root=FOLDER"
        with refuses(told):
            download(site, "coco", tmp_path, *sizes, f"keep_archives={keep}")
    assert site.requests == []


def test_offline(site, tmp_path, refused):
    """One line that names host, files and ways out; what is there already is not asked for."""
    site.files["/Flickr8k_Dataset.zip"] = zipped({"Flicker8k_Dataset/0.jpg": b"0"})
    with refuses(r"3 of 4 photographs .*1\.jpg"):  # of other splits
        download(site, "flickr8k", tmp_path)
    shutil.rmtree(tmp_path / "images")
    with socket.socket() as closed:  # bound and not listening, so that nobody else gets the port
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/Flickr8k_Dataset.zip"
        address = f"data.archives.photographs.url={url}"
        given = [*overrides(site, "flickr8k"), f"root={tmp_path}", address]
        line = refused(main, *given, out="dataset_flickr8k.json: already there\n")
    assert "Connection refused" in line
    assert f"{url} as {tmp_path}/Flickr8k_Dataset.zip" in line
    assert "data.archives.photographs.url=URL" in line
    assert files(tmp_path) == {"dataset_flickr8k.json"}


KEY = "data.archives.val2014"
REFUSED = [
    *(("root=''", "root"), ("keep_archives=1", "keep_archives")),
    *(("connection.timeout=inf", "connection.timeout"), (f"{KEY}=null", KEY)),
    *((f"{KEY}.url={url}", f"{KEY}.url") for url in ("ftp://host/a.zip", "http://a/")),
    *((f"{KEY}.size=1.5", f"{KEY}.size"), (f"{KEY}.checksum=md5:0", f"{KEY}.checksum")),
    (f"+{KEY}.sha256=0", f"{KEY}.sha256"),
]


@pytest.mark.parametrize("override, key", REFUSED)
def test_settings_that_cannot_be(override, key):
    with pytest.raises(CaptioningError) as refused:
        composed_and_run("data=coco", override)
    errors = refused.value.__cause__
    assert [".".join(map(str, error["loc"])) for error in errors.errors()] == [key]


def test_the_command_names_its_data_sets(printed):
    """Each has sizes and checksums of its archives."""
    with refuses(", ".join(DATA_SETS)):
        composed_and_run()
    shown = printed(main, "--help")
    for data in DATA_SETS:
        assert f"captioning download data={data}" in shown
        assert all(
            archive.size > 10**7 and archive.checksum for archive in published(data).values()
        )
