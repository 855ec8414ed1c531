"""Photographs that tables of other machines name, and advice that is tried: what a message says to
set is set, and must lead to another outcome.
"""

import re
from itertools import chain

import pytest
from hydra import compose, initialize_config_dir
from json_files import write_json
from omegaconf import OmegaConf
from PIL import Image

from captioning.config.explain import explain
from captioning.config.registry import CONF
from captioning.config.settings import check_reader
from captioning.data.example import SPLITS
from captioning.data.readers.captions import read_captions, read_references
from captioning.data.readers.reading import run_reader
from captioning.errors import CaptioningError

NAMES = [f"{folder}/{i}.jpg" for folder in "ab" for i in range(5)]
SETTING = re.compile(r"'?\b(data\.[\w.]+=(?:\[[^]]*\]|[^\s;,']+))'?")
KARPATHY = {"sentences": [{"raw": "a dog runs"}]}


def draw(folder, names=NAMES):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(folder / name, "JPEG")


def table(folder, names, header="image,caption", row="{},a dog runs\n", end=""):
    text = f"{header}\n" + "".join(row.format(name) for name in names)
    (folder / "captions.csv").write_text(text.replace("\n", end or "\n"), newline="")


def outcome(data, *settings, **options):
    """The examples that a command reads, or what it says; an unknown setting is an error here."""
    with initialize_config_dir(str(CONF), version_base=None):
        config = compose("config", [f"data={data}", *settings])
    try:
        reader = check_reader(OmegaConf.to_container(config.data, resolve=True)["reader"]).build()
        return run_reader(reader, **options)
    except (CaptioningError, ValueError, OSError) as error:
        return explain(error)


def paths(splits, folder):
    examples = [example for each in splits.values() for example in each]
    return sorted(example.path.relative_to(folder).as_posix() for example in examples)


def foreign(before, division="/"):
    return [f"{before}{name}".replace("/", division) for name in NAMES]


@pytest.mark.parametrize(
    "names",
    [
        foreign("images/"),
        foreign("", "\\"),
        foreign("images/", "\\"),
        foreign("C:/Users/me/data/images/", "\\"),
        foreign("/home/me/data/images/"),
    ],
)
def test_names_of_another_machine_are_those_below_the_folder(names, tmp_path):
    draw(tmp_path / "images")
    table(tmp_path, names)
    splits = outcome("csv", f"data.root={tmp_path}")
    assert paths(splits, tmp_path / "images") == NAMES
    ids = {example.image_id for each in splits.values() for example in each}
    assert ids == {name.lstrip("/") for name in names}


def test_names_of_this_machine_below_the_folder_and_in_lists(tmp_path):
    draw(tmp_path / "images")
    names = [f"{tmp_path}/images/{name}" for name in NAMES]
    table(tmp_path, names)
    for split, own in zip(SPLITS, (names[:6], names[6:8], names[8:]), strict=True):
        (tmp_path / f"{split}.txt").write_text("\n".join(own))
    splits = outcome("csv", f"data.root={tmp_path}")
    assert [len(splits[split]) for split in SPLITS] == [6, 2, 2]
    assert paths(splits, tmp_path / "images") == NAMES


def test_a_file_that_two_names_could_mean_is_neither(tmp_path):
    """Nor is a folder left out of names of which others are right."""
    draw(tmp_path / "images", ["0.jpg", "1.jpg", "a/2.jpg"])
    whole = [f"data.root={tmp_path}", "data.reader.splits={train:[0,1],val:null,test:null}"]
    names = ["a/0.jpg", "b/0.jpg", "a/1.jpg"]
    for named, there in ((names, "1.jpg"), ([*names, "a/2.jpg"], "a/2.jpg")):
        table(tmp_path, named)
        skipped = []
        splits = outcome("csv", *whole, skipped=skipped, needed=("train",))
        assert paths(splits, tmp_path / "images") == [there]
        assert len(skipped) == len(named) - 1


def test_references_of_windows_are_found_by_the_last_part_of_a_name(tmp_path):
    table(tmp_path, [f"images\\{i}.jpg" for i in range(3)])
    captions = [f"{i}.jpg" for i in range(3)]
    assert [*read_references(tmp_path / "captions.csv", captions=captions)] == captions


def test_a_text_whose_lines_end_in_carriage_returns_alone_is_read(tmp_path):
    """As Excel for old Macs writes them; beside line feeds they are blanks of a caption."""
    draw(tmp_path / "images")
    table(tmp_path, NAMES, end="\r")
    assert paths(outcome("csv", f"data.root={tmp_path}"), tmp_path / "images") == NAMES
    for caption in ('"a dog\rruns"', "a dog\rruns"):
        table(tmp_path, NAMES, row=f"{{}},{caption}\n")
        splits = outcome("csv", f"data.root={tmp_path}")
        texts = {reference.text for e in splits["train"] for reference in e.references}
        assert texts == {"a dog runs"}


def parts(splits):
    return [[example.image_id for example in splits[split]] for split in SPLITS]


@pytest.mark.parametrize("data", ["karpathy", "csv"])
def test_a_file_that_names_no_val_has_shares_of_train_for_it(data, tmp_path):
    """Eight images of train and two of test; then ten of one split, or of none."""
    draw(tmp_path / "images")

    def read(names, *settings):
        rows = [f"{image},a dog runs,{name}\n" for image, name in zip(NAMES, names, strict=True)]
        (tmp_path / "captions.csv").write_text("image,caption,split\n" + "".join(rows))
        images = [
            KARPATHY | {"filename": image} | ({"split": name} if name else {})
            for image, name in zip(NAMES, names, strict=True)
        ]
        write_json(tmp_path / "dataset.json", {"images": images})
        return outcome(data, f"data.root={tmp_path}", *settings)

    train, val, test = parts(read(["Train"] * 7 + ["validation", "dev", "testing"]))
    assert (train, val, test) == (NAMES[:7], NAMES[7:9], NAMES[9:])
    train, val, test = parts(read(["train"] * 8 + ["test"] * 2))
    assert (sorted(train + val), test) == (NAMES[:8], NAMES[8:])
    assert len(val) == 1
    shares = parts(read(["train"] * 10))
    assert [len(part) for part in shares] == [8, 1, 1]
    assert sorted(chain(*shares)) == NAMES
    assert parts(read([""] * 10)) == shares
    assert "no images for test" in read(["train"] * 8 + ["val"] * 2)


def obeyed(advice, columns):
    """The settings that a message names, with these columns in place of a word for them."""
    settings = dict(setting.split("=", 1) for setting in SETTING.findall(advice))
    return [f"{key}={columns.get(key) or value}" for key, value in settings.items()]


@pytest.mark.parametrize(
    "make, columns",
    [
        pytest.param(lambda folder: draw(folder / "photos"), {}, id="another folder"),
        pytest.param(lambda folder: draw(folder / "images" / "deep"), {}, id="below"),
        pytest.param(
            lambda folder: (
                draw(folder / "images"),
                table(folder, NAMES, "pixels,caption"),
            ),
            {"data.reader.images": "[pixels]", "data.reader.caption_columns": "[caption]"},
            id="images",
        ),
        pytest.param(
            lambda folder: (draw(folder / "images"), table(folder, NAMES, "image,words")),
            {"data.reader.images": "[image]", "data.reader.caption_columns": "[words]"},
            id="captions",
        ),
    ],
)
def test_advice_that_is_obeyed_leads_to_another_outcome(make, columns, tmp_path):
    table(tmp_path, [name.replace("/", "") for name in NAMES])
    make(tmp_path)
    for name in NAMES:  # without subfolders
        for file in tmp_path.glob(f"*/**/{name}"):
            if not columns:
                file.rename(file.parent.with_name(name.replace("/", "")))
    root = f"data.root={tmp_path}"
    said = outcome("csv", root)
    settings = obeyed(said, columns)
    assert settings, said
    assert not isinstance(outcome("csv", root, *settings), str)


@pytest.mark.parametrize("header", ["pixels,caption", "image,words"])
def test_scoring_files_names_no_setting_that_it_has_not(header, tmp_path):
    table(tmp_path, NAMES, header)
    with pytest.raises(CaptioningError) as refused:
        read_references(tmp_path / "captions.csv")
    assert not SETTING.search(explain(refused.value))


def test_captions_of_the_sound_challenge_have_their_own_column(tmp_path):
    table(tmp_path, NAMES, "file_name,caption_predicted")
    assert {r.caption for r in read_captions(tmp_path / "captions.csv").values()} == {"a dog runs"}
