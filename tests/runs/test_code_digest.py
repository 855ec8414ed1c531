"""Which changes of the code make a finished run another one."""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from hydra.utils import get_object

import captioning
from captioning.config.registry import CONF
from captioning.runs import code_digest as under_test
from captioning.runs.code_digest import NOT_OF_RUNS, code_digest

MODEL = yaml.safe_load((CONF / "model" / "spatial_transformer.yaml").read_text())["_target_"]
TARGETS = [MODEL, "captioning.decoding.beam_search", "captioning.training.objectives.CrossEntropy", "torch.optim.Adam"]
PACKAGE = Path(captioning.__file__).parent
Change = Callable[[Path, Callable[[str], str]], None]


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> Iterator[Change]:
    """Starts the process with another source, as if it had been on disk."""

    def to(path: Path, edit: Callable[[str], str]) -> None:
        before = under_test._SOURCES.get(path, b"").decode()
        monkeypatch.setitem(under_test._SOURCES, path, edit(before).encode())
        under_test._module.cache_clear()

    yield to
    under_test._module.cache_clear()


def defined_in(target: str) -> Path:
    return Path(inspect.getsourcefile(inspect.unwrap(get_object(target))) or "")


def another_number(source: str) -> str:
    """One number changed, inside a function."""
    tree = ast.parse(source)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    numbers = (n for f in functions for n in ast.walk(f) if isinstance(n, ast.Constant) and type(n.value) is int)
    next(numbers).value += 1  # type: ignore[operator]
    return ast.unparse(tree)


def test_remarks_and_layout_change_nothing(change: Change) -> None:
    path = defined_in(MODEL)
    more = "class Aside:\n    pass\n\n    def method(self):\n        return 1\n\n\nLIMIT = 3\n"
    change(path, lambda source: source + more)
    before = code_digest(TARGETS)
    told = (
        '# remark\nclass Aside:\n    """New."""\n\n    pass\n\n    def method(self):  # remark\n'
        '        """New."""\n        return (1)\n\n\nLIMIT = 3\n"""New."""\n'
    )
    change(path, lambda source: '"""Another beginning."""\n' + source.replace(more, told).replace("\n\n", "\n\n\n"))
    assert code_digest(TARGETS) == before


def test_a_new_model_changes_nothing_for_others(change: Change) -> None:
    before = code_digest(TARGETS)
    change(PACKAGE / "models" / "another.py", lambda _: "class Another:\n    pass\n")
    change(
        PACKAGE / "models" / "__init__.py",
        lambda source: source.replace(
            "__all__ = [", "from captioning.models.another import Another\n__all__ = ['Another',"
        ),
    )
    assert code_digest(TARGETS) == before


@pytest.mark.parametrize(
    "file",
    ["report/summary.py", "metrics/bootstrap.py", "decoding/ensemble.py", "predict.py", "data/readers/captions.py"],
)
def test_what_the_run_does_not_reach_changes_nothing(change: Change, file: str) -> None:
    before = code_digest(TARGETS)
    assert (PACKAGE / file).exists()
    change(PACKAGE / file, lambda source: source + "\nFURTHER = 1\n")
    assert code_digest(TARGETS) == before


@pytest.mark.parametrize(
    "target", [*TARGETS[:3], "captioning.training.module.CaptioningModule", "captioning.data.vocabulary.Vocabulary"]
)
def test_a_number_in_what_the_run_uses_changes_all(change: Change, target: str) -> None:
    before = code_digest(TARGETS)
    change(defined_in(target), another_number)
    assert code_digest(TARGETS) != before


@pytest.mark.parametrize("file", ["tokens.py", "work/run.py"])
def test_so_does_what_only_its_imports_import(change: Change, file: str) -> None:
    before = code_digest(TARGETS)
    change(PACKAGE / file, lambda source: source + "\nFURTHER = 1\n")
    assert code_digest(TARGETS) != before


def test_modules_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    """Those that the model's module imports too, relatively or not."""
    monkeypatch.syspath_prepend(tmp_path)
    files = {
        "mine/__init__.py": "from .model import Model\nfrom .aside import aside\n",
        "mine/model.py": "from . import layers\nfrom beside import M\n\n\nclass Model:\n    size = M * layers.N\n",
        "mine/layers.py": "N = 2\n",
        "mine/aside.py": "def aside():\n    return 1\n",
        "beside.py": "M = 3\n",
    }
    for name, source in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    target = "mine.Model"
    found = {}
    for name, source in files.items():
        before = code_digest([target])
        (tmp_path / name).write_text(source + "MORE = 1\n")
        assert code_digest([target]) == before, "this process runs the old source"
        under_test._module.cache_clear()
        found[name] = code_digest([target]) != before
    assert [name for name, changed in found.items() if not changed] == ["mine/aside.py"]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mine", "beside")]:
        del sys.modules[name]


def test_what_has_no_part_in_a_result_exists() -> None:
    """Or a moved file would count again."""
    paths = [PACKAGE.parent.joinpath(*name.split(".")) for name in NOT_OF_RUNS]
    assert [str(path) for path in paths if not path.is_dir() and not path.with_suffix(".py").exists()] == []
