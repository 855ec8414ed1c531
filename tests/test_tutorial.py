"""The chapters of the tutorial run from a clean folder; the outputs beside them are theirs."""

import json
import os
import runpy
import sys
from pathlib import Path

import pytest
from json_files import read_json
from processes import interrupt

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
CHAPTERS = sorted((EXPERIMENTS / "tutorial").glob("*.ipynb"))
CLAIMS = {  # of the text, in names of the chapter's code
    "1_captioner": "assert seen > shuffled + 20",
    "2_attention": "assert min(found['Additive'], found['ScaledDot']) > found['Uniform'] + 5",
    "3_training": "assert values[-1] > values[best] + 0.1; assert best < len(values) // 2",
    "4_decoding": "assert lengths[0.0][-1] < lengths[0.0][1] < lengths[1.0][1]",
    "5_parts": "assert low < 0 < high",
    "6_your_own": "assert Path('report/index.html').is_file()",
}


def cells(chapter):
    return [cell for cell in read_json(chapter)["cells"] if cell["cell_type"] == "code"]


def run(chapter, folder, miniature):
    """Run the code cells in order as one script, below a copy of the folders that they read."""
    place = folder / "tutorial"
    place.mkdir()
    for name in ("photographs", "references", "zoo_flickr8k"):
        (folder / name).symlink_to(EXPERIMENTS / name)
    code = []
    for cell in cells(chapter):
        code.append("".join(cell["source"]))
        if miniature:
            code += [
                f"{name} = {value!r}"
                for name, value in cell["metadata"].get("miniature", {}).items()
            ]
    code.append("" if miniature else CLAIMS.get(chapter.stem, ""))
    (place / "chapter.py").write_text("\n".join(code))
    environment = {"MPLBACKEND": "Agg", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = interrupt(execute, place, bool, environment=environment)
    assert ended.status == 0, ended.said[-3000:]


def execute():
    return runpy.run_path("chapter.py", run_name="__main__")


@pytest.mark.parametrize(
    "chapter",
    [c for c in CHAPTERS if any("miniature" in cell["metadata"] for cell in cells(c))],
    ids=lambda path: path.stem,
)
def test_a_chapter_runs_in_miniature(chapter, tmp_path):
    run(chapter, tmp_path, miniature=True)


@pytest.mark.soak
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_runs_and_shows_what_it_says(chapter, tmp_path):
    run(chapter, tmp_path, miniature=False)


def test_outputs_are_those_of_whole_runs():
    for chapter in CHAPTERS:
        counts = [cell["execution_count"] for cell in cells(chapter)]
        assert counts == list(range(1, len(counts) + 1)), chapter.name
        text = json.dumps([cell["outputs"] for cell in cells(chapter)])
        assert '"error"' not in text, chapter.name
        assert not any(name in text for name in (str(Path.home()), "/tmp/", "/home/")), chapter.name
    assert sum(chapter.stat().st_size for chapter in CHAPTERS) < 3e6
