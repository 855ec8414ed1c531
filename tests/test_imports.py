"""The borders of the design as rules about imports, read from the sources."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import captioning

PACKAGE = Path(captioning.__file__).parent
COMPOSERS = {"captioning.run", "captioning.evaluate", "captioning.checkpoint", "captioning.benchmark.built"}
"""Modules that may build objects from a configuration."""

FRAMEWORKS = {"lightning", "hydra", "omegaconf", "wandb"}
ALLOWED = {
    # sub-package: the parts of `captioning` that it may import beside itself, and forbidden libraries
    "models": ({"captioning.backbones.context", "captioning.tokens"}, FRAMEWORKS | {"torchmetrics", "PIL"}),
    "decoding": (
        {"captioning.backbones.context", "captioning.keyed_random", "captioning.models.protocol", "captioning.tokens"},
        FRAMEWORKS | {"torchmetrics", "PIL"},
    ),
    "metrics": ({"captioning.errors"}, FRAMEWORKS | {"torchvision", "PIL"}),
    "backbones": ({"captioning.errors"}, FRAMEWORKS | {"torchmetrics"}),
    "features": ({"captioning.backbones", "captioning.errors"}, FRAMEWORKS | {"torchmetrics"}),
    "data": ({"captioning.errors", "captioning.tokens"}, FRAMEWORKS - {"lightning"} | {"torchmetrics"}),
    # it needs the readers only to know what is missing
    "download": (
        {"captioning.data.karpathy", "captioning.data.splits", "captioning.errors"},
        FRAMEWORKS | {"torch", "torchvision", "torchmetrics", "PIL"},
    ),
    "report": ({"captioning.errors", "captioning.settings"}, FRAMEWORKS | {"torchmetrics"}),
    "training": (
        {
            "captioning.backbones",
            "captioning.data",
            "captioning.decoding",
            "captioning.errors",
            "captioning.keyed_random",
            "captioning.metrics",
            "captioning.models.protocol",
            "captioning.report",
            "captioning.settings",
            "captioning.tokens",
        },
        {"hydra", "omegaconf"},
    ),
    # it measures all of them, and `captioning.benchmark.built` composes what it measures
    "benchmark": (
        {
            "captioning.allocator",
            "captioning.backbones",
            "captioning.command",
            "captioning.data",
            "captioning.decoding",
            "captioning.devices",
            "captioning.errors",
            "captioning.features",
            "captioning.metrics",
            "captioning.models",
            "captioning.tokens",
            "captioning.training",
        },
        {"wandb"},
    ),
}


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


def test_every_sub_package_has_a_rule() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(ALLOWED)


@pytest.mark.parametrize("part", ALLOWED)
def test_borders(part: str) -> None:
    allowed, forbidden = ALLOWED[part]
    home = f"captioning.{part}"
    for name in filter(lambda name: within(name, home) and not name.endswith(".__main__"), MODULES):  # but commands
        for used in imports(name):
            assert used.split(".")[0] not in forbidden, f"{name} imports {used}"
            if within(used, "captioning"):
                assert any(within(used, border) for border in {home, *allowed}), f"{name} imports {used}"


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
    def part(name: str) -> str:
        return ".".join(name.split(".")[:2])

    edges: dict[str, set[str]] = {}
    for name in MODULES:
        targets = {part(used) for used in imports(name) if within(used, "captioning") and used != "captioning"}
        edges.setdefault(part(name), set()).update(targets - {part(name)})
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
