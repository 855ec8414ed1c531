"""The one place where libraries load folders of others: settings and weights, and no code.

A library that is given a folder also imports modules, unpickles weights, opens other folders and
asks servers, if a file of the folder says so. Here it is given a copy of the files that are known,
with settings that are known, by a call that forbids the rest.
"""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from captioning.errors import CaptioningError, listed, naming
from captioning.files import LARGEST_JSON, MAX_TEXT, read_bytes
from captioning.pretrained.library import CONFIG, read_folder, read_settings, tensor_shapes
from captioning.pretrained.tokenizer import open_tokenizer

INDEX, TOKENIZER = "model.safetensors.index.json", "tokenizer.json"
KNOWN = (CONFIG, INDEX, "special_tokens_map.json", "chat_template.json")
"""Ends of the names of files with settings that the library gets."""
OF_TOKENS = "tokenizer_config.json", "special_tokens_map.json"
TOKENS = re.compile(
    r"\w+_tokens?|added_tokens_decoder|(tokenizer|processor)_class|model_(max_length|input_names)|"
    r"\w+_side|chat_template|clean_up_tokenization_spaces|do_lower_case|strip_accents|legacy|"
    r"tokenize_chinese_chars|add_prefix_space|trim_offsets|keep_accents|remove_space|\w+_lang"
)
"""Settings of a tokenizer that the library gets: none of them names a file."""


def load_model(kind: str, key: str, setting: object) -> Any:
    """A model with all of its weights, in single precision; see `load`."""
    model, report = load(
        kind, key, setting, use_safetensors=True, dtype="float32", output_loading_info=True
    )
    # of the layer behind the features, which masked language models lack
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise CaptioningError(f"{key}={setting} lacks the weights {listed(missing)}")
    return model


def load(kind: str, key: str, setting: object, **given: Any) -> Any:
    """What `transformers.KIND.from_pretrained` makes of the folder that a setting names."""
    try:
        import transformers
    except ImportError as error:
        raise CaptioningError(
            f"{key}={setting} needs another package: pip install 'captioning[transformers]'"
        ) from error
    from captioning.pretrained.allocation import AllocationLimit  # here, as PyTorch takes seconds

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    folder, _ = read_folder(key, setting)
    with naming(f"{key}={setting} cannot be loaded"), TemporaryDirectory() as copy:
        _copy(folder, Path(copy))
        with AllocationLimit.for_file(tensor_shapes(folder)):
            return getattr(transformers, kind).from_pretrained(
                copy, local_files_only=True, trust_remote_code=False, **given
            )


def _copy(folder: Path, copy: Path) -> None:
    """Fill a folder for the library: the weights as links, and what is known of the settings."""
    for file in folder.iterdir():
        if file.suffix == ".safetensors":
            (copy / file.name).symlink_to(file.resolve())
        elif file.suffix == ".jinja":
            (copy / file.name).write_bytes(read_bytes(file, LARGEST_JSON))
        elif file.name == TOKENIZER:
            made = open_tokenizer(read_bytes(file, MAX_TEXT).decode())
            (copy / file.name).write_text(made.to_str())
        elif file.name.endswith(KNOWN):
            content = read_settings("it", file)
            if file.name == INDEX and any("/" in name for name in content["weight_map"].values()):
                raise CaptioningError(f"{INDEX} has weights of another folder")
            if file.name in OF_TOKENS:
                content = {name: content[name] for name in content if TOKENS.fullmatch(name)}
            (copy / file.name).write_text(json.dumps(content))
