"""What commands print of names and files of strangers, none of which a terminal obeys."""

import io
import logging
import sys

import pytest
import yaml
from json_files import write_lines
from pictures import plain
from processes import forked
from report.written import write_run
from support import FROZEN, TINY, Terminal
from tqdm import tqdm

from captioning.__main__ import COMMANDS
from captioning.machine import guard_terminal
from captioning.progress import progress_bar

HOSTILE = "\x1b[31m\x1b]0;pwned\a\x1b[2J\x9b31m\x7f\rover"
SAID = [f"{HOSTILE} a dog", "two dogs", f"a horse {HOSTILE}"]
# of each command, what makes it name what a stranger has written
NAMING = {
    "run": [*TINY, *FROZEN, "data=csv", "data.skip_broken=true", "test=false"],
    "runs": ["runs"],
    "evaluate": ["captions=a.jsonl", "references=a.jsonl", "metrics=[CIDEr]"],
    "compare": ["a.jsonl", "b.jsonl", "metrics=[]"],
    "predict": ["images=data/images"],
    "report": ["runs=runs"],
    "describe": ["data=csv", "data.root=data"],
    "serve": [f"report={HOSTILE}"],
    "export": [f"checkpoint={HOSTILE}"],
    "convert": ["source=sgrvinod", f"weights={HOSTILE}", "vocabulary=a.jsonl", "output=there"],
    "push": [f"checkpoint={HOSTILE}", "to=there"],
    "download": [f"data={HOSTILE}"],
    "doctor": [f"cache={HOSTILE}"],
}


def obeyed(text):
    return [c for c in text if c not in "\n\t" and (ord(c) < 32 or 127 <= ord(c) < 160)]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Runs, captions and photographs whose names and contents are hostile."""
    home = tmp_path_factory.mktemp("home")
    for number, wrong in enumerate(({}, {"seed": HOSTILE}, {"model": {"title": HOSTILE}})):
        folder = home / "runs" / f"{number}{HOSTILE}"
        place = write_run(folder, "sat_soft", said=SAID, ciders=[1.0, 2.0, 3.0])
        config = yaml.safe_load((place / "config.yaml").read_text())
        (place / "config.yaml").write_text(yaml.safe_dump(config | wrong))
    for name, score in (("a", 1.0), ("b", 2.0)):
        lines = [
            {"image_id": f"{number}{HOSTILE}", "caption": f"{name} {text}", "references": SAID}
            for number, text in enumerate(SAID)
        ]
        write_lines(home / f"{name}.jsonl", [line | {"scores": {"CIDEr": score}} for line in lines])
    images = home / "data" / "images"
    names = [f"{number}{HOSTILE}.png" for number in range(16)]
    for number, name in enumerate(names):
        plain(images / name, colour=(number, 9, 9))
        if number % 2:
            (images / name).write_text("no image")
    rows = [{"image": name, "caption": text} for name in names for text in SAID]
    write_lines(home / "data" / "captions.jsonl", rows)
    return home


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_what_a_terminal_obeys(command, home):
    ended = forked("__main__", home, command, *NAMING[command])
    said = ended.stdout + ended.stderr
    assert "Traceback" not in said
    assert "pwned" in said
    assert obeyed(said) == []


def test_what_a_terminal_obeys_is_written_as_json_has_it(capfd):
    """Also by logs that began before; names of files that are no text too."""
    streams = [
        io.TextIOWrapper(sys.stdout.buffer, "ascii"),
        io.TextIOWrapper(sys.stderr.buffer, "utf-8"),
    ]
    handler = logging.StreamHandler(streams[1])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stdout", streams[0])
        patched.setattr(sys, "stderr", streams[1])
        guard_terminal()
        guard_terminal()
    print("a\tb\x1b[31m", HOSTILE, "\u200c\udcff\x85", sep="\n", file=streams[0], flush=True)
    handler.handle(logging.makeLogRecord({"msg": f"\x1b[1mbold\x1b[0m {HOSTILE}"}))
    for stream in streams:
        stream.detach()
    escaped = r"\u001b]0;pwned\u0007\u001b[2J\u009b31m\u007f\u000dover"
    out, err = capfd.readouterr()
    assert out == f"a\tb\n{escaped}\n\u200c" + r"\udcff\u0085" + "\n"
    assert err == f"bold {escaped}\n"


def test_bars_are_drawn_as_ever(monkeypatch):
    drawn = []
    for guard in (int, guard_terminal):
        with Terminal(60, monkeypatch) as terminal:
            guard()
            with (
                progress_bar("one", 2, "image", mininterval=0) as bar,
                tqdm(total=1, position=1, ncols=20, bar_format="{desc}", desc="two"),
            ):
                bar.update()
        drawn.append(terminal.text)
    assert "\x1b[A" in drawn[0]
    assert drawn[0].count("\x1b[A") == drawn[1].count("\x1b[A")
    assert drawn[0].count("\r") == drawn[1].count("\r")
