"""The borders of the design as rules about imports, read from the sources."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import captioning

PACKAGE = Path(captioning.__file__).parent
COMPOSERS = {
    "captioning.run",
    "captioning.config.check",
    "captioning.benchmark.built",
}
"""Modules that may build objects from a configuration."""

LAYERS = (
    {"errors", "tokens", "machine", "files", "progress"},
    {"config.types"},
    {"models", "data", "backbones", "download"},
    {"decoding", "metrics", "features"},
    {"config", "runs"},
    {"training", "report", "benchmark"},
    {
        "run",
        "evaluate",
        "predict",
        "export",
        "push",
        "serve",
        "captioner",
        "doctor",
        "__main__",
        "",
    },
)
"""Parts of `captioning`, from the lowest: each may import its own layer and those below."""
FRAMEWORKS = {"lightning", "hydra", "omegaconf", "wandb"}
FORBIDDEN = {
    "models": FRAMEWORKS | {"torchmetrics", "PIL"},
    "decoding": FRAMEWORKS | {"torchmetrics", "PIL"},
    "metrics": FRAMEWORKS | {"torchvision", "PIL"},
    "backbones": FRAMEWORKS | {"torchmetrics"},
    "features": FRAMEWORKS | {"torchmetrics"},
    "data": FRAMEWORKS - {"lightning"} | {"torchmetrics"},
    "report": FRAMEWORKS | {"torchmetrics"},
    "training": {"hydra", "omegaconf"},
    "config": {"wandb", "torchmetrics", "PIL", "torchvision"},
    "runs": {"wandb", "torchmetrics", "PIL", "torchvision"},
    "download": FRAMEWORKS | {"torch", "torchvision", "torchmetrics", "PIL"},
    "benchmark": {"wandb"},
    "doctor": set(),
    "export": FRAMEWORKS | {"torchmetrics"},
    "push": FRAMEWORKS | {"torch", "torchvision", "torchmetrics", "PIL"},
    "serve": FRAMEWORKS | {"torchmetrics", "torchvision"},
}
"""Libraries that a part knows nothing of; its command, where it is one, starts by Hydra nevertheless."""
TENSORS_ALONE = {
    "models": {"backbones.context", "config.types", "tokens"},
    "decoding": {"backbones.context", "config.types", "models", "tokens"},
}
"""What these may import of `captioning`, and no more."""


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports(name: str) -> Iterator[str]:
    """What a module imports, wherever in it: `a.b` for `import a.b`, and `a.b` or `a.b.c` for `from a.b import c`."""
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else str(node.module)


def within(name: str, border: str) -> bool:
    return name == border or name.startswith(f"{border}.")


def part(name: str) -> str:
    """`captioning.data.batch` is of the part `data`, `captioning` itself of the part without a name."""
    if name == "captioning.config.types":  # the types of arguments, which all rooms share
        return "config.types"
    return ".".join(name.split(".")[1:2])


def layer(name: str) -> int:
    if name.endswith(".__main__"):  # a command with a room of its own
        return len(LAYERS)
    (found,) = [number for number, parts in enumerate(LAYERS) if part(name) in parts]
    return found


def test_every_sub_package_has_a_rule() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(FORBIDDEN)
    assert {part(name) for name in MODULES} == set.union(*LAYERS)


def test_the_hall_is_small() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 11


@pytest.mark.parametrize("name", MODULES)
def test_imports_run_downwards(name: str) -> None:
    for used in imports(name):
        if within(used, "captioning"):
            assert layer(used) <= layer(name), f"{name} imports {used}"
            if (alone := TENSORS_ALONE.get(part(name))) and part(used) != part(name):
                assert any(within(used, f"captioning.{border}") for border in alone), f"{name} imports {used}"


@pytest.mark.parametrize("home", FORBIDDEN)
def test_libraries_that_parts_know_nothing_of(home: str) -> None:
    for name in filter(lambda name: part(name) == home and not name.endswith(".__main__"), MODULES):
        for used in imports(name):
            assert used.split(".")[0] not in FORBIDDEN[home], f"{name} imports {used}"


def test_what_runs_beside_exported_graphs_stands_alone() -> None:
    used = {name.split(".")[0] for name in imports("captioning.export.runner")}
    assert used - set(sys.stdlib_module_names) == {"PIL", "numpy", "onnxruntime"}


def test_only_commands_compose() -> None:
    for name in MODULES:
        builders = {"instantiate", "call"}
        used = {
            alias.name
            for node in ast.walk(ast.parse(MODULES[name].read_text()))
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("hydra")
            for alias in node.names
        }
        assert name in COMPOSERS or not used & builders, f"{name} builds from a configuration"


def test_nothing_imports_a_command() -> None:
    commands = {name for name, path in MODULES.items() if "start(main)" in path.read_text() and name.count(".") == 1}
    assert "captioning.run" in commands
    for name in MODULES:
        # a command may share another one's composition, nothing else may
        if name not in COMPOSERS:
            assert not commands & set(imports(name)), f"{name} imports a command"


def test_no_cycles_between_sub_packages() -> None:
    edges: dict[str, set[str]] = {}
    for name in MODULES:
        targets = {part(used) for used in imports(name) if within(used, "captioning")}
        if not name.endswith(".__main__"):  # commands
            edges.setdefault(part(name), set()).update(targets - {part(name), ""})
    while edges:
        leaves = {name for name, targets in edges.items() if not targets & edges.keys()}
        assert leaves, f"a cycle among {sorted(edges)}"
        edges = {name: targets for name, targets in edges.items() if name not in leaves}


def test_no_cycles_between_modules() -> None:
    edges = {name: {used for used in imports(name) if used in MODULES} - {name} for name in MODULES}
    while edges:
        leaves = {name for name, targets in edges.items() if not targets & edges.keys()}
        assert leaves, f"a cycle among {sorted(edges)}"
        edges = {name: targets for name, targets in edges.items() if name not in leaves}
