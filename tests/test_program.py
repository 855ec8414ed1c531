"""All commands behind one name."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import captioning
from captioning.__main__ import COMMANDS, main

PACKAGE = Path(captioning.__file__).parent
Program = Callable[..., str]


@pytest.fixture
def program(elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """Runs it as the console script does; gives what it prints."""

    def run(*arguments: str, line: str = "") -> str:
        monkeypatch.setenv("COMP_LINE", line)
        monkeypatch.setattr(sys, "argv", ["/somewhere/bin/captioning", *arguments])
        monkeypatch.setattr(sys, "path", ["/somewhere/bin", *sys.path[1:]])
        main()
        return capsys.readouterr().out

    return run


def test_all_commands_are_listed_with_what_they_do(program: Program) -> None:
    modules = [*PACKAGE.glob("*.py"), *PACKAGE.glob("*/__main__.py")]
    startable = {path for path in modules if '\nif __name__ == "__main__":\n' in path.read_text()}
    names = {path.parent.name if path.stem == "__main__" else path.stem for path in startable}
    assert set(COMMANDS) == names - {"captioning"}
    said = program("--help")
    assert [line.split()[0] for line in said.splitlines() if line.startswith("  ")] == list(COMMANDS)
    assert "  run         Train a captioner and test it\n" in said
    assert program() == said


def test_the_version(program: Program) -> None:
    assert program("--version") == f"captioning {captioning.__version__}\n"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("repotr", "there is no command repotr. Did you mean report? Commands: run, evaluate, "),
        ("train", "there is no command train. Did you mean run? Commands: run, "),
        ("model=sat_soft", "there is no command model=sat_soft. Commands: run, "),
    ],
)
def test_a_misspelt_command(program: Program, capsys: pytest.CaptureFixture[str], word: str, said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        program(word)
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {said}")
    assert printed.err.count("\n") == 1


def test_a_command_is_what_python_would_start(
    program: Program, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that Lightning's further processes are the same command, and a user's module is found beside it."""
    Path("my_model.py").write_text(
        "import sys\nfrom pathlib import Path\n"
        "Path('started').write_text(f\"{sys.modules['__main__'].__spec__.name} {sys.argv[1:]}\")\n"
    )
    monkeypatch.delitem(sys.modules, "captioning.run", raising=False)  # or Python warns of a second one
    with pytest.raises(SystemExit):
        program("run", "model._target_=my_model.Absent")
    assert "my_model.Absent cannot be imported" in capsys.readouterr().err
    assert Path("started").read_text() == "captioning.run ['model._target_=my_model.Absent']"
    monkeypatch.delitem(sys.modules, "my_model")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("captioning ", {*COMMANDS}),
        ("captioning ev", {*COMMANDS}),  # the shell chooses among them
        ("captioning run model=sat_h", {"model=sat_hard"}),
        ("captioning  run seed=3 schedule.", {"schedule._target_=", "schedule._partial_=", "schedule.warmup_steps="}),
        ("captioning report publ", {"published="}),
        ("captioning doctor ti", set()),
        ("captioning nothing ", set()),
    ],
)
def test_completion(program: Program, line: str, offered: set[str]) -> None:
    assert offered <= set(program("-sc", "query=bash", line=line).split())
    assert bool(offered) is bool(program("-sc", "query=bash", line=line))


def test_completion_is_of_the_name_that_is_typed(program: Program) -> None:
    assert program("-sc", "install=bash").endswith(
        "complete -o nospace -o default -F hydra_bash_completion captioning\n"
    )
