"""A path, a name or a word is what was typed, whatever Hydra's grammar would make of it."""

import inspect
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml
from hydra._internal.utils import get_args_parser
from support import FROZEN, TINY, flickr8k

from captioning import evaluate, predict, run
from captioning.__main__ import COMMANDS, ROOMS
from captioning.config.arguments import (
    GROUP_TEXTS,
    command_line,
    parse_overrides,
    split_options,
    text_settings,
)
from captioning.config.registry import CONF, each_part, target_of
from captioning.config.schemas.run import RunSettings
from captioning.config.settings import described

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
IN_GROUPS = ["data.root", "data.reader.annotations", "backbone.weights"]
TEXTS = [
    *("runs/a-lr=0.003/best.ckpt", "https://host/a.safetensors#sha256=0f", "My Drive (1)", "x[1]"),
    *("(x)", "O'Brien", "'em", 'a "b" c', "a&b", "a,b", "~/flickr8k", "#1", "/home/jürgen", "数据"),
    *("a\\b", "end\\", "{x", "a;b", "1e5", "1_000", "true", "False", "nan", "0x10", "5", "a:b"),
    *(" blank ", "%d", "*.jpg", "x=[1,2]"),
]
FOLDER = 'a=b (1) [x] {y}; O\'Brien & "ü" 数据 #1 ~e5 %'


def value_of(argument):
    (parsed,) = parse_overrides([argument])
    value = parsed.value()
    if isinstance(value, list):
        return [getattr(element, "text", element) for element in value]
    return getattr(value, "text", value)


@pytest.mark.parametrize("name", MAINS)
def test_a_text_is_kept_by_every_setting_of_every_command(name):
    main = MAINS[name]
    types = ((key, hint) for key, hint, _ in described(main.schema))
    for key in (*sorted(text_settings(types)), *IN_GROUPS):
        for text in TEXTS:
            (argument,) = main.overrides([f"{key}={text}"])
            assert value_of(argument) == text, (key, text)
        # what does not separate, or join, elements of a list
        single = [text for text in TEXTS if not {",", "{"} & {*text} and text.strip("' ") == text]
        (argument,) = main.overrides([f"{key}=[{','.join(single)}]"])
        assert value_of(argument) == single


KEPT = """
model=sat_soft optimizer.lr=1e-3 test=false ~logger +trainer.fast_dev_run=true seed=1 init_from=null
data.root=${oc.env:HOME} logger=[csv,wandb] data.reader.part.train=[0,0.8] callbacks=default
"""


def test_other_settings_keep_their_types_and_what_is_quoted_stays():
    given = [*KEPT.split(), "data.root='a b'", "-m", "--config-dir", "a=b (1)"]
    assert run.main.overrides(given) == given
    # it has no other meaning
    assert run.main.overrides(["model.title=a (b"]) == ["model.title='a (b'"]


def test_in_a_sweep_commas_separate_texts_too():
    given = ["data.root=a b,O'Brien", "data.root=choice(a,b)", "model=sat_soft,sat_hard", "-m"]
    assert run.main.overrides(given) == ["data.root='a b','O\\'Brien'", *given[1:]]


def test_a_folder_that_looks_like_a_list_is_a_folder(elsewhere):
    Path("[x]").mkdir()
    assert run.main.overrides(["data.root=[x]"]) == ["data.root='[x]'"]


def test_commands_take_a_folder_of_any_characters(elsewhere, printed):
    flickr8k(elsewhere / FOLDER)
    data = f"data.root={FOLDER}"
    frozen = [setting for setting in FROZEN if not setting.startswith("data.root")]
    printed(run.main, *TINY, *frozen, data, f"cache={FOLDER}/cache", f"runs={FOLDER}/runs")
    (best,) = Path(FOLDER).glob("runs/*/checkpoints/best.ckpt")
    printed(predict.main, f"checkpoint={best}", f"images={FOLDER}/images")
    printed(predict.main, f"checkpoint={best}", f"{FOLDER}/images/0.jpg")
    scored = ["metrics=[BLEU]", f"runs={FOLDER}/scored", f"cache={FOLDER}/cache", data]
    printed(evaluate.main, f"decoding.ensemble=[{best},{best}]", *scored)
    assert len(list(Path(FOLDER, "scored").iterdir())) == 1


@pytest.mark.parametrize(
    "given, typed",
    [
        ("data.root='FOLDER'", "data.root=FOLDER"),
        ("metrics.val=['BLEU','CIDEr']", "'metrics.val=[BLEU,CIDEr]'"),
        ("name='1e5'", """'name='"'"'1e5'"'"''"""),  # which is no number
        ("name='a,b'", """'name='"'"'a,b'"'"''"""),
        ("seed=1,2", "seed=1,2"),
        ("-m", "-m"),
    ],
)
def test_a_command_is_printed_without_needless_quotes(given, typed):
    assert command_line([given]) == f"captioning run {typed}"


def test_settings_may_stand_between_options():
    """Hydra's own parser refuses them; values of options stay where they are."""
    given = ["a=1", "-m", "--config-dir", "x=y", "b=2", "--info", "defaults", "c=3", "--cfg", "job"]
    first = ["a=1", "b=2", "c=3", "-m", "--config-dir", "x=y", "--info", "defaults", "--cfg", "job"]
    assert split_options(given) == split_options(first) == (first[:3], first[3:])
    parsed = get_args_parser().parse_args(first)
    assert (parsed.overrides, parsed.config_dir, parsed.info) == (first[:3], "x=y", "defaults")


def parts_of_files():
    """Keys of parts in the files of groups, with the class or function that each names."""
    for path in CONF.glob("*/*.yaml"):
        text, group = path.read_text(), path.parent.name
        key = "" if "@package _global_" in text else group
        for place, node in each_part(key, yaml.safe_load(text)):
            if str(node["_target_"]).startswith("captioning."):
                yield place, target_of(place, node["_target_"])


def test_texts_of_parts_are_known():
    """What only a text or a path fits, by its annotation, is quoted for Hydra."""
    missing, of_run = set(), text_settings((key, hint) for key, hint, _ in described(RunSettings))
    for key, target in parts_of_files():
        constructor = target.__init__ if inspect.isclass(target) else target
        hints = get_type_hints(getattr(constructor, "raw_function", constructor))
        texts = text_settings((f"{key}.{name}", hint) for name, hint in hints.items())
        missing |= {each for each in texts - of_run if not GROUP_TEXTS.fullmatch(each)}
    assert not {each for each in missing if not each.endswith(".return")}
