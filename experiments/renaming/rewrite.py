"""Convert checkpoints, runs and settings of versions before 1.0 to the new names.

    python experiments/renaming/rewrite.py PATH...

A PATH is a checkpoint, a YAML file, or a folder of these: each run in it is converted as a whole.
Files are overwritten in place; make a backup first. The three tables below list old and new names.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from captioning.config.registry import CONF
from captioning.data.readers.captions import recorded_references
from captioning.errors import CaptioningError
from captioning.files import write_json, write_text
from captioning.metrics import SCORES, Scorer
from captioning.runs.checkpoints import checkpoint
from captioning.runs.evaluation.captions import captions_file, read_records
from captioning.runs.folders.record import settings_digest
from captioning.runs.settings import FORMAT, read_settings

CALLBACKS = {
    "records": ("attention_panels", "kept_attention", "results"),
    "statistics": ("attention_statistics", "caption_wording", "pointing"),
    "timing": ("compiled", "stopwatch", "throughput"),
    "resume": ("resume_points",),
}
MODULES = {
    "models.parts.pairs": "models.parts.cells",
    "models.parts.initial": "models.parts.image",
    "models.parts.inject": "models.parts.image",
    "models.parts.transposed": "models.parts.encoders",
    "backbones.small_cnn": "backbones.scratch",
    "backbones.patches": "backbones.scratch",
    "data.readers.csv": "data.readers.table",
    "training.rewards": "training.objectives.rewards",
    "runs.checkpoint_files": "training.callbacks.resume",
    **{
        f"training.callbacks.{old}": f"training.callbacks.{new}"
        for new, olds in CALLBACKS.items()
        for old in olds
    },
}
"""Modules below `captioning.`, old to new."""
PARTS = {
    "training.module.warmup_decay": "training.schedule.warmup_decay",
    "training.loggers.wandb.WandbRecord": "training.callbacks.wandb.WandbRecord",
    "training.callbacks.records.KeepAttention": "training.callbacks.records.AttentionLogger",
    "training.callbacks.timing.Compile": "training.callbacks.compilation.Compile",
    "models.parts.cells.AttentionOnAttention": "models.parts.cells.AoACell",
    "models.parts.encoders.Queries": "models.parts.encoders.LearnedQueries",
    "models.parts.heads.Linear": "models.parts.heads.LinearHead",
    "models.parts.image.MLP": "models.parts.image.MLPInit",
    "models.parts.recurrent_encoder.Recurrent": "models.parts.recurrent_encoder.RecurrentEncoder",
    "models.parts.scores.Linear": "models.parts.scores.LinearScore",
    "models.parts.scores.MLP": "models.parts.scores.AdditiveScore",
}
"""Classes and functions below `captioning.`, after `MODULES`, old to new."""
OUTSIDE = {
    **dict.fromkeys(
        (
            "captioning.backbones.side_by_side.SideBySide",
            "captioning.backbones.side_by_side.ConcatBackbone",
        ),
        "experiments.two_backbones.side_by_side.ConcatBackbone",
    ),
    "captioning.data.speech.SpeechReader": "experiments.speech.drawn_speech.SpeechReader",
    "captioning.data.shapes.MovingShapesReader": (
        "experiments.moving_shapes.moving_clips.MovingShapesReader"
    ),
    "captioning.backbones.words.Words": "experiments.two_languages.sentences.Words",
    "captioning.data.readers.parallel.ParallelReader": (
        "experiments.two_languages.sentences.ParallelReader"
    ),
    "captioning.data.shapes.two_languages.TwoLanguages": (
        "experiments.two_languages.artificial_languages.TwoLanguages"
    ),
}
"""Parts that have left the package."""
SETTINGS = (
    # old, new, and the parts or else the groups that have it; the command itself is the group ""
    (
        "d_feat",
        "d_model",
        "Transformer SpatialTransformer SelfAttentionLayers Pooled Queries model encoder behind",
    ),
    ("d_hidden", "d_ff", "Transformer SpatialTransformer SelfAttentionLayers"),
    ("enter", "conditioning", "Transformer model"),
    ("choice", "mode", "SoftmaxAttention ShowAttendTell attention"),
    ("reach", "kernel_size", "Location score"),
    ("doublings", "upsample_steps", "Transposed encoder"),
    ("behind", "encoder", "Transposed Queries encoder"),
    ("credit", "reward_to_go", "Reinforce objective"),
    ("eos", "reward_eos", "SelfCritical objective"),
    ("select", "beam_widths", "beam_search diverse_beam_search decoding"),
    ("side", "image_size", "page"),
    ("inside", "embed_mb", "page"),
    ("keep", "save_attention", ""),
    ("views", "corruptions", ""),
)
VALUES: dict[str, Any] = {
    "reach": lambda reach: reach + 1,
    "credit": lambda credit: credit == "future",
    "resize": lambda resize: "stretch" if resize == "squash" else resize,
}
"""Settings, by their old names, whose values have changed too."""
STATE = ((r"\.behind\.", ".inner."),)
"""Names of weights."""
ATTENTION = ("gate", "choice", "temperature", "smoothing", "energy_bias", "window")
"""Settings of recurrent decoders until attention was a part."""
NEW = {
    "captioning.decoding.beam_search": {"early_stopping": True},
    "captioning.decoding.diverse_beam_search": {"early_stopping": True},
}
"""What parts did before there was a setting for it."""


def renamed(key: str, siblings: Iterable[str], group: str, part: str | None) -> str:
    """The new name of a setting of a part, or where that is not given of a group."""
    names = list(siblings)
    owner = group if part is None else part.rpartition(".")[2]
    if key == "d_hidden" and part is None and {"d_feat", "d_model"} & set(names):
        return "d_ff"
    for old, new, owners in SETTINGS:
        if key == old and owner in (owners.split() or [""]):
            return new
    return key


def moved(target: str) -> str:
    """The new place of a part."""
    if target in OUTSIDE:
        return OUTSIDE[target]
    module, _, name = target.removeprefix("captioning.").rpartition(".")
    path = f"{MODULES.get(module, module)}.{name}"
    return f"captioning.{PARTS.get(path, path)}" if target.startswith("captioning.") else target


def rewritten(node: Any, group: str = "") -> Any:
    """Stored settings in today's names."""
    if isinstance(node, list):
        return [rewritten(value, group) for value in node]
    if not isinstance(node, Mapping):
        return node
    settings: dict[str, Any] = dict(node)
    part = settings.get("_target_")
    if part is not None:
        settings["_target_"] = part = moved(part)
    if part == "captioning.models.Recurrent" and "attention" not in settings:
        own = {key: settings.pop(key) for key in ATTENTION if key in settings}
        target = "captioning.models.parts.attention.SoftmaxAttention"
        if settings.get("score"):
            settings["attention"] = {"_target_": target, "_partial_": True, **own}
    settings |= {key: v for key, v in NEW.get(str(part), {}).items() if key not in settings}
    return {
        renamed(key, settings, group, node.get("_target_")): rewritten(changed(key, value), key)
        for key, value in settings.items()
    }


def as_number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def changed(key: str, value: Any) -> Any:
    return VALUES[key](value) if key in VALUES and isinstance(value, int | str) else value


def edits(node: yaml.Node, group: str = "") -> Iterator[tuple[int, int, str]]:
    """What to replace in the text of a YAML file, whose comments thus stay."""
    if isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from edits(each, group)
    elif isinstance(node, yaml.ScalarNode):
        new = re.sub(r"@behind\b", "@encoder", node.value)
        new = re.sub(r"(\$\{\.+)d_feat\b", r"\1d_model", new)
        if new != node.value:
            yield node.start_mark.index, node.end_mark.index, yaml.safe_dump(new).split("\n")[0]
    elif isinstance(node, yaml.MappingNode):
        settings = {key.value: value for key, value in node.value}
        part = settings["_target_"].value if "_target_" in settings else None
        for key, value in node.value:
            *above, last = key.value.split(".")  # of a sweep, `decoding.select`
            owner = above[-1] if above else group
            new = ".".join([*above, renamed(last, settings, owner, None if above else part)])
            if new != key.value:
                yield key.start_mark.index, key.end_mark.index, new
            plain = as_number(value.value) if isinstance(value, yaml.ScalarNode) else None
            if key.value == "_target_":
                yield value.start_mark.index, value.end_mark.index, moved(value.value)
            elif plain is not None and changed(key.value, plain) != plain:
                text = json.dumps(changed(key.value, plain)).strip('"')
                yield value.start_mark.index, value.end_mark.index, text
            else:
                yield from edits(value, key.value)


def rewrite_text(path: Path) -> bool:
    """Rewrite a YAML file that people write; tell what only they can know."""
    text = path.read_text(encoding="utf-8")
    tree = yaml.compose(text, yaml.SafeLoader)
    new = text
    for start, end, replacement in sorted(edits(tree) if tree else (), reverse=True):
        new = new[:start] + replacement + new[end:]
    if re.search(r"^\s*d_hidden:", new, re.MULTILINE) and "_target_" not in new:
        print(f"{path}: d_hidden of a transformer is now d_ff, of a recurrent decoder it stays")
    if new != text:
        write_text(path, new)
    return new != text


def rewrite_run(config: Path) -> bool:
    """Rewrite the settings of a run, then what its other files say of them."""
    before = yaml.safe_load(config.read_text(encoding="utf-8"))
    settings: dict[str, Any] = rewritten(before)
    if "model" in settings:
        add_defaults(settings)
    if "overrides" in settings:
        settings["overrides"] = [overridden(each, before) for each in settings["overrides"]]
    settings["format"] = FORMAT
    done = settings != before
    if done:
        write_text(config, yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))
    for name, rewrite in (("scores.json", rewrite_scores), ("run.json", rewrite_digests)):
        path = config.with_name(name)
        if path.exists():
            done |= rewrite(path, settings)
    return done


def add_defaults(settings: dict[str, Any]) -> None:
    """What runs have recorded since: the parts by their names, a title, a language."""
    called = Path(str(settings.get("folder"))).name.removeprefix(f"{settings.get('name')}-")
    model = called.rpartition("-seed")[0]
    usual = {"model": model, "data": settings.get("name"), "experiment": "not recorded"}
    settings["choices"] = usual | settings.get("choices", {})
    file = CONF / "model" / f"{settings['choices']['model']}.yaml"
    if "title" not in settings["model"] and file.is_file():
        settings["model"]["title"] = yaml.safe_load(file.read_text(encoding="utf-8"))["title"]
    settings["data"] = {"language": "en", "tokens": "words"} | settings["data"]


def overridden(override: str, before: Any) -> str:
    """An override of the command line, of which the old settings know what part it was for."""
    key, equals, value = override.partition("=")
    *above, last = key.split(".")
    for name in above:
        before = before.get(name) if isinstance(before, Mapping) else None
    target = before.get("_target_") if isinstance(before, Mapping) else None
    new = renamed(last, (), above[-1] if above else "", target)
    plain = as_number(value)
    if changed(last, plain) != plain:
        value = json.dumps(changed(last, plain)).strip('"')
    return ".".join([*above, new]) + equals + value


def rewrite_scores(path: Path, settings: Mapping[str, Any]) -> bool:
    text = path.read_text(encoding="utf-8")
    record = json.loads(text)
    about = record["provenance"]
    if "decoding" in about:
        about["decoding"] = rewritten(about["decoding"], "decoding")
    if "model" in settings and captions_file(path.parent).exists():
        lines = read_records(path.parent)
        about.setdefault("images_tested", len(lines))
        known = recorded_references(path.parent) if "references" in about else None
        about.setdefault("images_of_split", len(known or lines))
        if not about.get("signatures"):
            texts = [line.references for line in lines]
            metrics = [SCORES[name].metric for name in record["scores"] if name in SCORES]
            named = dict.fromkeys(metric for metric in metrics if metric)
            about["signatures"] = Scorer(texts, list(named)).signatures
    if record != json.loads(text):
        write_json(path, record)
    return record != json.loads(text)


def rewrite_digests(path: Path, settings: Mapping[str, Any]) -> bool:
    """The digest of the settings by which a run is found again."""
    record = json.loads(path.read_text(encoding="utf-8"))
    digests = record.get("digests", {})
    new = settings_digest(read_settings(path.with_name("config.yaml")))
    for name in ("configuration", "code"):
        digests.pop(name, None)
    if digests.get("settings") == new:
        return False
    record["digests"] = digests | {"settings": new}
    write_json(path, record)
    return True


def rewrite_checkpoint(path: Path) -> bool:
    """Rewrite the configuration in a checkpoint, and the names of its weights."""
    saved = checkpoint.content(path)
    inside = saved["captioning"]
    config = rewritten(inside["config"])
    add_defaults(config)
    if inside.get("format") == FORMAT and config == inside["config"]:
        return False
    names = with_names(saved["state_dict"])
    if checkpoint.is_safetensors(path):
        given = {**inside, "config": config}
        given.pop("format", None)
        checkpoint.write_safetensors(path, state=names, **given)
    else:
        saved = {**with_names(saved), "captioning": {**inside, "format": FORMAT, "config": config}}
        checkpoint.write_checkpoint(path, saved)
    return True


def with_names(node: Any) -> Any:
    """The same with the new names of weights, in the optimiser and averages too."""
    if isinstance(node, Mapping):
        found = {}
        for key, value in node.items():
            if key == "objective._extra_state":  # document frequencies, which the data give
                continue
            if isinstance(value, Tensor) and isinstance(key, str):
                for old, new in STATE:
                    key = re.sub(old, new, key)
            found[key] = with_names(value)
        return found
    return [with_names(value) for value in node] if isinstance(node, list) else node


def rewrite(path: Path) -> bool:
    """Rewrite one file; True if it was in need of that."""
    if path.suffix in (".ckpt", ".safetensors"):
        return rewrite_checkpoint(path)
    run = path.name == "config.yaml" and "runs" in (yaml.safe_load(path.read_text()) or {})
    return rewrite_run(path) if run else rewrite_text(path)


def main(paths: Iterable[Path]) -> None:
    for given in paths:
        inside = sorted(given.rglob("*")) if given.is_dir() else [given]
        for path in inside:
            if path.suffix in (".yaml", ".ckpt", ".safetensors") and path.is_file():
                try:
                    if rewrite(path):
                        print(path, flush=True)
                except (CaptioningError, yaml.YAMLError) as error:
                    print(f"left as it is: {path}: {error}", file=sys.stderr)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(map(Path, sys.argv[1:]))
