import pytest
from support import Terminal

from captioning import progress
from captioning.progress import duration, progress_bar


def draw():
    with progress_bar("scenes drawn", 3, "scene") as found:
        found.update(3)


def test_times_as_people_say_them():
    said = {
        0.2: "0 s",
        59.4: "59 s",
        59.6: "1 min",
        3599: "1 h",
        7800: "2 h 10 min",
        86_390: "1 d",
        100_800: "1 d 4 h",
    }
    assert {seconds: duration(seconds) for seconds in said} == said


def test_a_log_file_has_lines_without_cursor_codes_of_the_first_process(monkeypatch, capsys):
    draw()
    # it has not taken half a minute
    assert capsys.readouterr().err.startswith("scenes drawn: 3/3 scene, ")
    with progress_bar("nothing to do", 2, "image", initial=2):
        pass
    assert "nothing" not in capsys.readouterr().err
    monkeypatch.setattr(progress, "EVERY", 0)
    with progress_bar("received", 4_000_000, "B", initial=1_000_000, unit_scale=True) as found:
        found.update(1_000_000)
        first = capsys.readouterr().err
    assert first.startswith("received: 2.00M/4.00M B, ")
    assert "\r" not in first
    capsys.readouterr()
    monkeypatch.setenv("RANK", "1")
    draw()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("width", [100, 40, 0])
def test_a_terminal_has_a_bar_of_its_width(width, monkeypatch):
    with Terminal(width, monkeypatch) as terminal:
        draw()
    frames = terminal.frames()
    assert "scenes drawn: 100%|" in frames[-1]
    assert all(len(frame) <= (width or 80) for frame in frames)
    assert terminal.text.count("\n") == 1
