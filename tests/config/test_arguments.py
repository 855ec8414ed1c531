"""A path, a name or a word is what was typed, whatever Hydra's grammar would make of it."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from support import FROZEN, TINY, flickr8k

from captioning import evaluate, predict, run
from captioning.__main__ import COMMANDS, ROOMS
from captioning.config.arguments import text_settings
from captioning.config.command import Command
from captioning.config.settings import described
from captioning.describe.__main__ import main as describe
from captioning.export.__main__ import main as export
from captioning.report.__main__ import main as report
from captioning.report.compare.__main__ import main as compare

PACKAGE = Path(run.__file__).parent
MAINS = {
    name: import_module(
        f"captioning.{room}"
        if (PACKAGE / f"{room}.py").is_file()
        else f"captioning.{room}.__main__"
    ).main
    for name in COMMANDS
    for room in [ROOMS.get(name, name)]
    if name != "doctor"  # which reads its arguments without Hydra
}
IN_GROUPS = [
    "data.root",
    "data.reader.annotations",
    "backbone.weights",
    "decoding.ensemble",
    "logger.wandb.project",
]
TEXTS = [
    *(
        "runs/a-optimizer.lr=0.003/best.ckpt",
        "https://host/a.safetensors#sha256=0f",
        "My Drive (1)",
        "x[1]",
        "(x)",
    ),
    *(
        "O'Brien",
        "'em",
        'a "b" c',
        "a&b",
        "a,b",
        "~/flickr8k",
        "#1",
        "/home/jürgen",
        "数据",
        "a\\b",
        "end\\",
        "{x",
        "a;b",
    ),
    *(
        "{x",
        "a;b",
        "1e5",
        "1_000",
        "true",
        "False",
        "nan",
        "0x10",
        "5",
        "a:b",
        " blank ",
        "%d",
        "*.jpg",
        "x=[1,2]",
    ),
]
FOLDER = 'a=b (1) [x] {y}; O\'Brien & "ü" 数据 #1 ~e5 %'
Run = Callable[..., str]


def value_of(argument: str) -> object:
    (parsed,) = OverridesParser.create().parse_overrides([argument])
    value = parsed.value()
    return (
        [getattr(each, "text", each) for each in value]
        if isinstance(value, list)
        else getattr(value, "text", value)
    )


@pytest.mark.parametrize("name", MAINS)
def test_a_text_is_kept_by_every_setting_of_every_command(name: str) -> None:
    main: Command = MAINS[name]
    types = ((key, hint) for key, hint, _ in described(main.schema))
    for key in (*sorted(text_settings(types)), *IN_GROUPS):
        for text in TEXTS:
            (argument,) = main.overrides([f"{key}={text}"])
            assert value_of(argument) == text, (key, text)
        apart = [",", "{"]  # what separates, or joins, elements of a list
        single = [
            text
            for text in TEXTS
            if not any(each in text for each in apart) and text.strip("' ") == text
        ]
        (argument,) = main.overrides([f"{key}=[{','.join(single)}]"])
        assert value_of(argument) == single


def test_other_settings_keep_their_types_and_what_is_quoted_stays() -> None:
    given = [
        *(
            "model=sat_soft",
            "optimizer.lr=1e-3",
            "test=false",
            "~logger",
            "+trainer.fast_dev_run=true",
            "seed=1",
        ),
        *(
            "data.root='a b'",
            "init_from=null",
            "data.root=${oc.env:HOME}",
            "logger=[csv,wandb]",
            "callbacks=default",
        ),
        *(
            "data.reader.part.train=[0,0.8]",
            "trainer.val_check_interval=0.5",
            "--config-dir",
            "a=b (1)",
            "-m",
        ),
    ]
    assert run.main.overrides(given) == given
    assert run.main.overrides(["model.title=a (b"]) == [
        "model.title='a (b'"
    ]  # it has no other meaning


def test_in_a_sweep_commas_separate_texts_too() -> None:
    given = ["-m", "data.root=a b,O'Brien", "data.root=choice(a,b)", "model=sat_soft,sat_hard"]
    assert run.main.overrides(given) == ["-m", "data.root='a b','O\\'Brien'", *given[2:]]


def test_a_folder_that_looks_like_a_list_is_a_folder(elsewhere: Path) -> None:
    Path("[x]").mkdir()
    assert (
        run.main.overrides(["data.root=[x]", "data.reader.annotations=[y]"])[0] == "data.root='[x]'"
    )


def test_every_command_takes_a_folder_of_any_characters(elsewhere: Path, printed: Run) -> None:
    flickr8k(elsewhere / FOLDER)
    (annotations,) = Path(FOLDER).glob("*.json")
    entries = json.loads(annotations.read_text())
    entries["images"][3]["split"] = "test"  # two, which can be compared
    annotations.write_text(json.dumps(entries))
    data = f"data.root={FOLDER}"
    frozen = [each for each in FROZEN if not each.startswith("data.root")]
    printed(describe, "data=flickr8k", data, f"output={FOLDER}/described")
    trained = [*TINY, *frozen, data, f"cache={FOLDER}/cache"]
    printed(run.main, *trained, f"runs={FOLDER}/runs")
    (best,) = Path(FOLDER).glob("runs/*/checkpoints/best.ckpt")
    printed(run.main, *trained, f"init_from={best}", f"runs={FOLDER}/again")
    printed(predict.main, f"checkpoint={best}", f"images={FOLDER}/images")
    printed(predict.main, f"checkpoint={best}", f"{FOLDER}/images/0.jpg")
    scored = ["metrics=[BLEU]", f"runs={FOLDER}/scored"]
    printed(
        evaluate.main, f"decoding.ensemble=[{best},{best}]", *scored, data, f"cache={FOLDER}/cache"
    )
    printed(evaluate.main, f"captions={best.parents[1]}/captions.jsonl", *scored)
    printed(export, f"checkpoint={best}", f"output={FOLDER}/small.safetensors")
    one, other = (
        next(Path(FOLDER, name).glob("*/captions.jsonl")).parent for name in ("runs", "again")
    )
    printed(compare, str(one), str(other), "metrics=[BLEU]", f"output={FOLDER}/compared")
    printed(report, f"runs={FOLDER}/runs", f"output={FOLDER}/reported")
    left = (
        "described/index.html",
        "small.safetensors",
        "compared/index.html",
        "reported/index.html",
    )
    assert [name for name in left if not Path(FOLDER, name).is_file()] == []
    assert len(list(Path(FOLDER, "scored").iterdir())) == 2
