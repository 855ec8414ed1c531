"""All commands behind one name, and what they answer before they import the libraries that take
seconds.
"""

import json
import sys
from pathlib import Path

import pytest
from json_files import parsed
from pictures import plain
from processes import python

import captioning
from captioning.__main__ import COMMANDS, ROOMS, main

PACKAGE = Path(captioning.__file__).parent


@pytest.fixture
def program(elsewhere, capsys, monkeypatch):
    """Runs it as the console script does; gives what it prints."""

    def run(*arguments, line=""):
        monkeypatch.setenv("COMP_LINE", line)
        monkeypatch.setattr(sys, "argv", ["/somewhere/bin/captioning", *arguments])
        monkeypatch.setattr(sys, "path", ["/somewhere/bin", *sys.path[1:]])
        main()
        return capsys.readouterr().out

    return run


def test_all_commands_are_listed_with_what_they_do(program):
    modules = [*PACKAGE.glob("*.py"), *PACKAGE.rglob("*/__main__.py")]
    startable = {path for path in modules if '\nif __name__ == "__main__":\n' in path.read_text()}
    names = {path.parent.name if path.stem == "__main__" else path.stem for path in startable}
    assert set(COMMANDS) == names - {"captioning"}
    said = program("--help")
    assert [line.split()[0] for line in said.splitlines() if line.startswith("  ")] == list(
        COMMANDS
    )
    assert "  run         Train a captioner and test it\n" in said
    assert program() == program("help") == said
    assert program("--version") == f"captioning {captioning.__version__}\n"


@pytest.mark.parametrize("word, meant", [("repotr", "report"), ("train", "captioning run")])
def test_a_misspelt_command(program, capsys, word, meant):
    with pytest.raises(SystemExit) as ended:
        program(word)
    assert ended.value.code == 1
    assert f"there is no command {word}. Did you mean {meant}?" in capsys.readouterr().err


def test_a_command_is_what_python_would_start(program, capsys, monkeypatch):
    """So that Lightning's further processes are the same command, and a user's module is found
    beside it.
    """
    started = "import sys; print(sys.modules['__main__'].__spec__.name, sys.argv[1:])"
    Path("my_model.py").write_text(started)
    # or Python warns of a second one
    monkeypatch.delitem(sys.modules, "captioning.run", raising=False)
    with pytest.raises(SystemExit):
        program("run", "model._target_=my_model.Absent")
    out, err = capsys.readouterr()
    assert out == "captioning.run ['model._target_=my_model.Absent']\n"
    assert "my_model.Absent cannot be imported" in err
    monkeypatch.delitem(sys.modules, "my_model")


@pytest.mark.parametrize(
    "line, offered",
    [
        ("captioning ", {*COMMANDS}),
        ("captioning run model=sat_h", {"model=sat_hard"}),
        ("captioning  run seed=3 schedule.", {"schedule.warmup_steps="}),
        ("captioning report publ", {"published="}),
        ("captioning predict decoding.filters.req", {"decoding.filters.required="}),
        ("captioning doctor ti", set()),
    ],
)
def test_completion(program, line, offered):
    """Of the name that is typed."""
    found = program("-sc", "query=bash", line=line).split()
    assert offered <= set(found)
    assert bool(offered) is bool(found)


HEAVY = ("torch", "torchvision", "lightning", "torchmetrics", "matplotlib")
SCRIPT = """
import contextlib, importlib, io, json, sys
from captioning.config.command import start

heavy, calls = json.loads(sys.argv[1])
for name, *arguments in calls:
    sys.argv = ["command", *arguments]
    main, said = importlib.import_module(f"captioning.{name}").main, io.TextIOWrapper(io.BytesIO())
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        contextlib.suppress(SystemExit),
    ):
        start(main)
    said.seek(0)
    print(json.dumps([said.read(), [module for module in heavy if module in sys.modules]]))
"""
MODULES = [
    ROOMS.get(name, name) + (".__main__" if not (PACKAGE / f"{name}.py").is_file() else "")
    for name in COMMANDS
    if name != "doctor"
]
FILES = ("ours.json", "theirs.jsonl", "metrics=[BLEU]")
ANSWERS = {
    ("run", "--cfg", "job"): "model:",
    ("run", "model=nothing"): "there is no model=nothing",
    ("run", "data=flickr8k", "data.root=nowhere"): "data.root=nowhere does not exist",
    ("run", "data=csv", "data.root=."): "captions.txt",
    ("run", "data=coco"): "captioning download data=coco",
    ("run", "data.vocabulary.subwords=nowhere"): "data.vocabulary.subwords=nowhere",
    ("run", "init_from=nowhere.ckpt"): "init_from=nowhere.ckpt is not there",
    ("run", "model.dropuot=0.3"): "there is no setting model.dropuot",
    ("run", "seed=x"): "seed=x: must be",
    ("evaluate", "checkpoint=nowhere.ckpt"): "checkpoint=nowhere.ckpt is not there",
    ("evaluate", "checkpoint=ours.json", "data.root=nowhere"): "data.root=nowhere does not exist",
    ("predict", "checkpoint=nowhere.ckpt", "images=."): "checkpoint=nowhere.ckpt is not there",
    ("push.__main__", "checkpoint=ours.json", "to=hf:name"): "to=hf:name",
    ("report.__main__", "runs=nowhere"): "runs=nowhere",
    ("describe.__main__", "data=flickr8k", "data.root=nowhere"): "data.root=nowhere does not exist",
    ("evaluate", "captions=ours.json", "references=theirs.jsonl", FILES[2]): "BLEU-4",
    ("report.compare.__main__", *FILES): "BLEU-4",
}


def answers(home, heavy, *calls):
    """Gives command lines to one fresh process: of each what it said, and which of the `heavy`
    modules were there by then.
    """
    ended = python("-c", SCRIPT, json.dumps([heavy, calls]), cwd=home)
    assert ended.returncode == 0, ended.stderr
    return parsed(ended.stdout)


def test_help_refusals_and_scores_of_files_take_no_heavy_library(tmp_path):
    ours = [{"image_id": i, "caption": "a red circle"} for i in range(2)]
    theirs = [line | {"references": ["a red circle", "one circle"]} for line in ours]
    (tmp_path / "ours.json").write_text(json.dumps(ours))
    (tmp_path / "theirs.jsonl").write_text("\n".join(map(json.dumps, theirs)))
    calls = {(name, "--help"): "Settings, KEY=VALUE" for name in MODULES} | ANSWERS
    for (call, part), (said, imported) in zip(
        calls.items(), answers(tmp_path, HEAVY, *calls), strict=True
    ):
        assert part in said, (call, said)
        assert imported == [], call


def test_a_caption_loads_no_more_than_it_needs(tmp_path, shapes_run):
    """PyTorch and Pillow's formats; neither libraries of networks, nor metrics, nor training."""
    plain(tmp_path / "grey.jpg")
    rooms = (f"captioning.{room}" for room in ("metrics", "report", "training"))
    formats = ("PIL.JpegImagePlugin", "PIL.TiffImagePlugin")
    libraries = ("pycocoevalcap", "scipy", "sympy", "timm", "transformers", "pandas", "wandb")
    heavy = [*HEAVY, *libraries, "torch._dynamo", *rooms, *formats]
    scene, checkpoint = shapes_run.photographs[0], f"checkpoint={shapes_run.checkpoint}"
    calls = ("predict", "device=cpu", str(scene), checkpoint), ("predict", "device=cpu", "grey.jpg")
    trained, bundled = answers(tmp_path, heavy, *calls)
    assert json.loads(trained[0])["caption"] == shapes_run.captions[0]
    assert json.loads(bundled[0])["caption"]
    assert trained[1] == bundled[1] == ["torch", *formats]  # a PNG is one of all formats


def test_a_process_ends_with_its_last_line_and_its_own_exit_code(tmp_path):
    for words, code in ((["--version"], 0), (["run", "model.dropuot=0.3"], 1)):
        ended = python("-m", "captioning", *words, cwd=tmp_path)
        assert ended.returncode == code
        assert (ended.stdout.count("\n"), ended.stderr.count("\n")) == (1 - code, code)
