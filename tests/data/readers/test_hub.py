"""Sets that the library `datasets` reads: parquet and WebDatasets as the Hub has them."""

import gzip
import io
import json
import os
import re
import resource
import shlex
import tarfile
from itertools import chain
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from data.readers import layouts
from download.server import Site, serving
from omegaconf import OmegaConf
from pictures import plain
from refusals import refuses
from support import composed

from captioning.backbones.images import ImageTransform
from captioning.config.explain import explain
from captioning.config.settings import check_reader
from captioning.data.example import SPLITS
from captioning.data.image_files import fingerprints, readable
from captioning.data.images import open_image
from captioning.data.readers import hub, kept, reading
from captioning.data.readers.hub import HubReader
from captioning.data.readers.reading import run_reader
from captioning.errors import CaptioningError

PAGE = Path(__file__).parents[3] / "captioning" / "data" / "README.md"
NAMES = {name: name for name in SPLITS}
SETS = {
    "undefined443/coco-karpathy-wds": (layouts.hub_coco, [100, 101, 102, 103]),
    "nlphuji/flickr30k@refs/convert/parquet": (layouts.hub, ["0", "1", "2", "3"]),
    "arampacha/rsicd": (layouts.hub_rsicd, [f"rsicd_images/{i}.jpg" for i in range(4)]),
    "lmms-lab/TextCaps": (layouts.hub_textcaps, [f"{i:016x}" for i in range(3)]),
}
"""What writes a miniature of each set that the page names, and the ids in it."""


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photographs")
    for i in range(8):
        plain(folder / "images" / f"{i}.jpg", colour=(30 * i, 9, 9))
    return folder


@pytest.fixture
def folder(photographs, tmp_path):
    """A path as users have them."""
    made = tmp_path / "a = b"
    made.mkdir()
    (made / "images").symlink_to(photographs / "images")
    return made


def reader(folder, splits=NAMES, **columns):
    return HubReader(str(folder), splits, os.environ["HF_DATASETS_CACHE"], **columns)


def rows_of(folder, count=4, **more):
    """Rows with an image, a caption and what `more` makes of their numbers."""
    return [
        {"image": layouts.image_cell(folder, i), "caption": f"a dog {i}"}
        | {name: value(i) for name, value in more.items()}
        for i in range(count)
    ]


def ids(splits):
    return [[example.image_id for example in splits[name]] for name in SPLITS]


def texts(splits):
    return [r.text for name in SPLITS for e in splits[name] for r in e.references]


@pytest.mark.parametrize("name", SETS)
def test_a_set_of_the_page_is_read_by_its_command(name, folder):
    write, expected = SETS[name]
    write(folder)
    page = PAGE.read_text().replace("\\\n", "")
    (command,) = re.findall(rf"^captioning run (.*{name}.*?)(?:  #.*)?$", page, re.MULTILINE)
    overrides = shlex.split(command.replace(name, f"\"'{folder / 'hub'}'\""))
    config = composed(*overrides)
    data = OmegaConf.to_container(config.data, resolve=True)
    needed = SPLITS if config.test else ("train", "val")
    splits = run_reader(check_reader(data["reader"]).build(), needed=needed)
    assert ids(splits) == [expected[:2], expected[2:3], expected[3:]]
    assert set(texts(splits)) == {*layouts.TEXTS}
    for number, example in enumerate(example for split in splits.values() for example in split):
        with open_image(example.path) as image:
            assert image.getpixel((0, 0))[0] == pytest.approx(30 * number, abs=3)


def test_rows_with_one_id_are_one_image_and_splits_may_be_shares(folder):
    """Shares are of the splits that no name takes."""
    repeated = [row | {"image_id": i} for i, row in enumerate(rows_of(folder)) for _ in range(2)]
    repeated[1]["caption"] = "another"
    layouts.write_parquet(folder / "set" / "train.parquet", repeated)
    layouts.write_parquet(folder / "set" / "test.parquet", rows_of(folder, 8, image_id=int)[4:])
    shares = {"train": [0, 0.75], "val": [0.75, 1], "test": "test"}
    splits = run_reader(reader(folder / "set", shares))
    train, val, test = ids(splits)
    assert sorted([*train, *val]) == [0, 1, 2, 3]
    assert (len(train), test) == (3, [4, 5, 6, 7])
    assert {"a dog 0", "another"} <= {*texts(splits)}
    repeated[1]["image"] = layouts.image_cell(folder, 0) | {"bytes": b"another"}
    layouts.write_parquet(folder / "set" / "train.parquet", repeated)
    with refuses("0 has another image in an earlier row.*id_column"):
        reader(folder / "set", shares)()
    with refuses("no images for val"):
        reader(folder / "set", id_column="caption")()


def test_a_column_gives_the_groups(folder):
    places = rows_of(folder, place=lambda i: ["indoor", "outdoor"][i % 2])
    for split in ("train", "test"):
        layouts.write_parquet(folder / "set" / f"{split}.parquet", places)
    read = reader(folder / "set", NAMES | {"val": None})
    splits = run_reader(read, needed=["train"], groups="place")
    assert [example.group for example in splits["test"]] == ["indoor", "outdoor"] * 2


def test_one_split_without_a_column_is_shared(folder):
    layouts.write_parquet(folder / "a.parquet", rows_of(folder, 8) * 2)
    splits = reader(folder / "*.parquet")()
    assert [len(split) for split in ids(splits)] == [13, 1, 2]
    assert {*chain(*ids(splits))} == {f"train/{row}" for row in range(16)}


def test_what_is_broken_is_named_by_its_row_or_left_out(folder):
    rows = rows_of(folder, 8, image_id=lambda i: i, split=lambda i: (*SPLITS, "train")[i % 4])
    rows[0]["image"]["bytes"] = b"no image"
    rows[3]["image"] = None
    rows[4]["caption"] = "!"
    rows[5]["caption"] = None
    rows[6]["image"] = {"bytes": None, "path": "/etc/hostname"}
    layouts.write_parquet(folder / "set" / "a.parquet", rows)
    with pytest.raises(CaptioningError) as refused:
        run_reader(reader(folder / "set"))
    assert "image/row-3" in explain(refused.value)
    skipped = []
    splits = run_reader(reader(folder / "set"), skipped=skipped)
    assert ids(splits) == [[0, 7], [1], [2]]
    for row, error in zip((3, 5, 6, 4), skipped, strict=True):
        assert f"row-{row}" in explain(error)
    with refuses("image/row-0.*is of another kind than JPEG"):
        readable(splits, ImageTransform(8), folder / "checked", skip_broken=False)
    kept = readable(splits, ImageTransform(8), folder / "checked", skip_broken=True)
    assert ids(kept) == [[7], [1], [2]]


def test_columns_are_found_where_they_can_be_meant_alone(folder):
    rows = rows_of(
        folder, words=lambda i: [f"a cat {i}"], mask=lambda i: {"bytes": b"", "path": ""}
    )
    for row in rows:
        row["about"] = row.pop("caption")
    layouts.write_parquet(folder / "set" / "a.parquet", rows)
    columns = r"image\.bytes \(binary\), .*words \(list<.*>\), .*a row: .*a cat 0"
    with refuses(f"image_column.*{columns}"):
        reader(folder / "set")()
    with refuses(f"caption_columns.*{columns}"):
        reader(folder / "set", image_column="image", caption_columns=["caption"])()
    shares = {"train": [0, 1], "val": None, "test": None}
    for further, expected in (([], "a cat 0"), (["about", "words"], "a dog 0")):
        read = reader(folder / "set", shares, image_column="image", caption_columns=further)
        splits = run_reader(read, needed=("train",))
        assert texts(splits)[0] == expected


def test_features_are_of_a_row_and_of_the_content_of_its_set(folder):
    """And nothing is unpacked."""
    made = folder / "set" / "a.parquet"
    found = []
    for caption in ("a dog", "a dog", "a cat"):
        rows = [row | {"caption": caption} for row in rows_of(folder, 8)]
        layouts.write_parquet(made, rows)
        os.utime(made, (len(caption), ord(caption[2])))
        splits = reader(folder / "set")()
        paths = [example.path for split in splits.values() for example in split]
        found.append(fingerprints(paths))
        assert {path.parents[2].suffix for path in paths} == {".arrow"}
        assert not any(map(os.path.exists, paths))
    assert found[0] == found[1]
    assert not {*found[0]} & {*found[2]}
    assert len({*found[0]}) == len(paths)


def test_a_large_set_is_kept_until_its_files_change(folder, tmp_path, monkeypatch):
    """Here 21 images are many."""
    for module in kept, reading:
        monkeypatch.setattr(module, "FEW", 20)
    made, cache, cell = folder / "set" / "a.parquet", tmp_path / "cache", {"bytes": b"an image"}
    found = []
    for words, count in ("a dog", 1), ("a dog", 1), ("one cat", 2):
        rows = [{"image": cell, "caption": f"{words} {i % 9}"} for i in range(21)]
        layouts.write_parquet(made, rows)
        os.utime(made, (0, len(words)))
        splits = run_reader(reader(folder / "set"), cache=cache)
        found.append({name: list(examples) for name, examples in splits.items()})
        assert {r.text[:-2] for e in splits["val"] for r in e.references} == {words}
        assert len([*cache.glob("captions/*/about.json")]) == count
    assert found[0] == found[1]
    assert found[2] == {name: list(each) for name, each in reader(folder / "set")().items()}


@pytest.mark.parametrize(
    "name, reason",
    [
        ("script", r"it has no \*\.tar"),
        ("nobody/nothing@main", "without a network"),
        ("absent", "Unable to find"),
        ("json", "Unable to find"),  # nor is the current folder read
        ("imagefolder", "Unable to find"),
    ],
)
def test_what_cannot_be_loaded_is_refused_and_no_code_is_run(name, reason, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "script").mkdir()
    (folder / "script" / "script.py").write_text("open('run', 'w')")
    layouts.write_parquet(folder / "train.parquet", rows_of(folder))
    with refuses(f"data.name={name} cannot be loaded.*{reason}"):
        reader(name)()
    assert not (folder / "run").exists()


def test_images_of_a_folder_stay_files(folder):
    made = folder / "set" / "train"
    plain(made / "1.jpg")
    (made / "metadata.jsonl").write_text('{"file_name": "1.jpg", "text": "a dog"}\n')
    splits = run_reader(reader(folder / "set", NAMES | {"train": [0, 1]}), needed=("train",))
    (example,) = splits["train"]
    assert example.path == made / "1.jpg"


@pytest.mark.parametrize("name", ["json", "parquet", "imagefolder"])
def test_a_folder_may_be_called_as_a_module_of_the_library(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    layouts.write_parquet(folder / name / "a.parquet", rows_of(folder, 8))
    layouts.write_parquet(folder / "b.parquet", rows_of(folder))
    splits = HubReader(name, NAMES, os.environ["HF_DATASETS_CACHE"])()
    assert sum(map(len, splits.values())) == 8


def test_a_folder_tells_the_library_no_place(folder):
    """Addresses, other folders, and a README.md of more bytes than there is memory."""
    layouts.write_parquet(folder / "other" / "private.parquet", rows_of(folder, 5))
    layouts.write_parquet(folder / "set" / "a.parquet", rows_of(folder, 8))
    readme, others = folder / "set" / "README.md", ("dataset_infos.json", ".huggingface.yaml")
    site = Site({"/x.parquet": (folder / "other" / "private.parquet").read_bytes()})
    with serving(site):
        for named in (
            f"{site.address}/x.parquet",
            f"zip://x.parquet::{site.address}/x.zip",
            str(folder / "other" / "private.parquet"),
            "../other/*.parquet",
        ):
            config = {"config_name": "default", "data_files": named, "data_dir": "../other"}
            for name in others:
                (folder / "set" / name).write_text(json.dumps({"configs": [config]}))
            readme.write_text(f"---\n{json.dumps({'configs': [config]})}\n---\n")
            assert sum(map(len, ids(reader(folder / "set")()))) == 8
    assert not site.requests
    os.truncate(readme, 2**36)
    assert sum(map(len, ids(reader(folder / "set")()))) == 8


@pytest.mark.parametrize("link", ["a.parquet", "train"])
@pytest.mark.parametrize("by", ["", "*.parquet"])
def test_a_link_is_not_followed(by, link, folder):
    layouts.write_parquet(folder / "other" / "private.parquet", rows_of(folder, 8))
    (folder / "set").mkdir()
    target = folder / "other" / ("private.parquet" if link == "a.parquet" else "")
    (folder / "set" / link).symlink_to(target)
    with refuses(r"a\.parquet is a link|cannot be loaded"):
        reader(folder / "set" / by)()


@pytest.mark.parametrize("by", ["", "*.parquet"])
def test_links_of_the_hubs_cache_are_followed(by, folder):
    """A downloaded set is a folder of links, to files that are called by their digests."""
    layouts.write_parquet(folder / "blobs" / "0a1b", rows_of(folder, 8))
    downloaded = folder / "snapshots" / "revision"
    downloaded.mkdir(parents=True)
    (downloaded / "a.parquet").symlink_to("../../blobs/0a1b")
    assert sum(map(len, ids(reader(downloaded / by)()))) == 8


def test_images_may_be_links_of_the_hubs_cache(folder):
    downloaded, blobs = folder / "snapshots" / "revision", folder / "blobs"
    plain(blobs / "1.jpg")
    (blobs / "1.jpg").rename(blobs / "0a1b")
    downloaded.mkdir(parents=True)
    (downloaded / "1.jpg").symlink_to("../../blobs/0a1b")
    table = pyarrow.table({"file_name": ["1.jpg"], "text": ["a dog"]})
    pyarrow.parquet.write_table(table, downloaded / "metadata.parquet")
    all_of_it = NAMES | {"train": [0, 1]}
    splits = run_reader(reader(downloaded, all_of_it), needed=("train",))
    assert [example.path for example in splits["train"]] == [downloaded / "1.jpg"]


def test_an_image_that_is_a_link_is_not_followed(folder):
    made = folder / "set" / "train"
    for number in (1, 2):
        plain(made / f"{number}.jpg")
    plain(folder / "private.jpg")
    (made / "1.jpg").unlink()
    (made / "1.jpg").symlink_to(folder / "private.jpg")
    lines = [json.dumps({"file_name": f"{i}.jpg", "text": "a dog"}) for i in (1, 2)]
    (made / "metadata.jsonl").write_text("\n".join(lines))
    skipped, all_of_it = [], NAMES | {"train": [0, 1]}
    splits = run_reader(reader(folder / "set", all_of_it), needed=("train",), skipped=skipped)
    assert [example.path for example in splits["train"]] == [made / "2.jpg"]
    assert "none below" in explain(skipped[0])


def write_tar(file, folder, name, content):
    with tarfile.open(file, "w") as archive:
        for member, inside in (("0.jpg", layouts.image_cell(folder, 0)["bytes"]), (name, content)):
            info = tarfile.TarInfo(member)
            info.size = len(inside)
            archive.addfile(info, io.BytesIO(inside))


def column(text, count):
    """A text that the file has once."""
    indices = pyarrow.array([0] * count, pyarrow.int32())
    return pyarrow.DictionaryArray.from_arrays(indices, [text]).dictionary_decode()


def write_bomb(kind, folder, size):
    """Little that becomes about `size` bytes."""
    made, content = folder / "set", b"a" * size
    made.mkdir()
    if kind == "member":
        write_tar(made / "a.tar", folder, "0.txt.gz", gzip.compress(content))
    elif kind == "archive":
        write_tar(folder / "b.tar", folder, "0.txt", content)
        (made / "a.tar").write_bytes(gzip.compress((folder / "b.tar").read_bytes()))
    else:
        count = {"rows": size // 100, "texts": 24, "list": 1}[kind]
        text = "a" * (size // count if kind == "texts" else 60)
        image = column(layouts.image_cell(folder, 0)["bytes"], count), column("0.jpg", count)
        columns = {
            "image": pyarrow.StructArray.from_arrays(image, ["bytes", "path"]),
            "caption": column(text, count),
        }
        if kind == "list":
            columns["numbers"] = [[0] * (size // 8)]
        pyarrow.parquet.write_table(pyarrow.table(columns), made / "a.parquet", compression="zstd")


@pytest.mark.parametrize("kind", ["member", "archive", "rows", "texts", "list"])
def test_small_files_do_not_become_large_ones(kind, folder):
    """Neither on the disk nor in memory, and the limits are gone afterwards."""
    write_bomb(kind, folder, 2**26)
    limits = {
        each: resource.getrlimit(each) for each in (resource.RLIMIT_FSIZE, resource.RLIMIT_DATA)
    }
    cache = Path(os.environ["HF_DATASETS_CACHE"])
    before = sum(path.stat().st_size for path in cache.rglob("*"))
    with refuses(r"data\.name=.*set cannot be loaded.*(File too large|invalid header|different)"):
        reader(folder / "set")()
    assert sum(path.stat().st_size for path in cache.rglob("*")) < before + 2**20
    assert limits == {each: resource.getrlimit(each) for each in limits}


def test_what_is_unpacked_fits_into_memory(folder, monkeypatch):
    monkeypatch.setattr(hub, "LARGEST", 2**27)
    write_bomb("member", folder, 2**29)
    with refuses("cannot be loaded.*(allocat|MemoryError)"):
        reader(folder / "set")()


def test_the_cause_of_a_fault_is_named(folder):
    layouts.write_parquet(folder / "set" / "a.parquet", rows_of(folder))
    layouts.write_parquet(folder / "set" / "b.parquet", [{"image": 1, "caption": "a dog"}])
    with pytest.raises(CaptioningError) as refused:
        reader(folder / "set")()
    assert "An error occurred" not in str(refused.value)
    assert "cast" in str(refused.value)
