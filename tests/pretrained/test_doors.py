"""The ways by which libraries read files and folders of others: all of them, from the sources."""

import ast
import re
from pathlib import Path

import captioning

PACKAGE = Path(captioning.__file__).parent
LOADING = re.compile(
    r"(?!json\.|captioning\.)(.*\.)?(from_pretrained|from_config|for_model|create_model\w*|"
    r"get_tokenizer|get_model|from_str|from_file|load_dataset\w*|load_from_disk|load_file|safe_open|"
    r"snapshot_download|hf_hub_download|load_state_dict_from_url|inject_adapter_in_model|Auto\w+)"
    r"|(torch|np|numpy|joblib|hub|pickle|jit|onnx)\.load\w*|.*InferenceSession|yaml\.(unsafe_|full_)?load|"
    r"pickle\.\w+|subprocess\.\w+|Popen|.*import_module|eval|exec|__import__"
)
"""Calls that read what somebody else may have made, or that run something."""
OPENER = {
    "pretrained/loading.py": {
        "getattr(transformers, kind).from_pretrained",
    },
    "pretrained/tokenizer.py": {"library.Tokenizer.from_str", "subprocess.run"},
    "pretrained/trial.py": {"Tokenizer.from_str"},  # in a process of its own
}
"""Folders and tokenizers go through these alone."""
FILES = {
    "pretrained/library.py": {"safe_open"},  # shapes
    "pretrained/named.py": {"hf_hub_download"},  # whose file is opened below
    "runs/checkpoints/checkpoint.py": {"safe_open", "torch.load"},
    "backbones/weights.py": {"load_file", "torch.load"},
    # pickles, by a reader with a closed list of names: tests/convert/test_unpickle.py
    "convert/unpickle.py": {"pickle.UnpicklingError", "pickle.dumps"},
    "backbones/arrays.py": {"np.load", "torch.load"},
    "data/columns.py": {"np.load"},
    "data/readers/kept.py": {"np.load"},
    "data/readers/hub.py": {"datasets.load_dataset_builder"},
    "files.py": {"np.load"},
}
"""Single files of tensors and arrays, and data sets."""
NETWORKS = {
    "backbones/timm.py": {"timm.create_model"},
    "backbones/torchvision.py": {"torchvision.models.get_model"},
    "models/language_model.py": {
        "AutoConfig.for_model",
        "AutoModelForCausalLM.from_config",
        "inject_adapter_in_model",
    },
}
"""Networks with random weights, or with those of a library, by a name of a closed list."""
CODE = {
    "__main__.py": {"import_module"},  # a command
    "convert/__main__.py": {"import_module"},  # a source, of the package's
    "config/settings.py": {"create_model"},  # of pydantic: a schema
    "config/types.py": {"import_module"},  # modules that the user names
    "machine.py": {"subprocess.run"},
    "metrics/java.py": {"subprocess.run"},
    "runs/settings.py": {"yaml.load"},
}
"""Programs and modules, and YAML by a loader of our own."""
SAFE = {
    "torch.load": {"weights_only": True},
    "np.load": {"allow_pickle": False},
    "AutoModelForCausalLM.from_config": {"trust_remote_code": False},
    "getattr(transformers, kind).from_pretrained": {
        "local_files_only": True,
        "trust_remote_code": False,
    },
}


def calls():
    """By file of the package: names and constant arguments of the calls that load."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and LOADING.fullmatch(name := ast.unparse(node.func)):
                given = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
                yield str(path.relative_to(PACKAGE)), name, given


def test_every_call_that_loads_is_known():
    found = {}
    for file, name, _ in calls():
        found.setdefault(file, set()).add(name)
    assert found == OPENER | FILES | NETWORKS | CODE


def test_calls_that_load_forbid_code():
    for file, name, given in calls():
        assert SAFE.get(name, {}).items() <= given.items(), (file, name)


def test_the_page_on_safety_has_a_row_for_each_setting_that_names_a_folder():
    keys = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("load", "load_model"):
                keys |= {word.value for word in node.args[1:2] if isinstance(word, ast.Constant)}
    assert keys == {"checkpoint", "model.path"}
    page = (PACKAGE.parent / "conf" / "safety.md").read_text()
    for key in (*keys, "CLIP_WEIGHTS", "data.vocabulary.subwords"):
        assert re.search(rf"^\|.*`{key}[`=].*\|.*\|$", page, re.MULTILINE), key
