"""A captioner and its card in Markdown, the content of a repository of the hub."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCardData

from captioning import __version__
from captioning.config.registry import each_part
from captioning.download.named import FILE
from captioning.files import write_text
from captioning.metrics.scorer import HEADLINE, MAIN, SCORES
from captioning.report.runs import Record, read_record
from captioning.report.systems import system_name
from captioning.report.tables import markdown_table
from captioning.runs.checkpoint import load, write_safetensors
from captioning.runs.settings import relocate

TASK = "image-to-text"
SETTINGS = ("seed", "data", "backbone", "model", "objective", "optimizer", "schedule", "trainer", "decoding")
CARD = """---
{front}
---

# {title}

It writes a sentence about a photograph. Trained on {data} with `captioning` {version}.

```sh
captioning predict PHOTOGRAPH {call}
```

## Data

Photographs and captions of the training split of {data}. Its vocabulary is {words:,} words of these captions.

## Scores

{scores}

## Limits

- It knows its {words:,} words and no others. What a photograph shows beyond them it leaves out, or calls
  something else.
- It knows photographs and captions like those of {data}. Of others it writes as fluently, and often wrongly; the score
  with a caption does not tell which.
- It repeats what annotators wrote, their guesses at people's sex, age and doings among it. No decision about a person
  can rest on a caption.

## Settings

```yaml
{settings}```
"""


def write_folder(folder: Path, checkpoint: Path, called: str, half: bool, licence: str | None) -> None:
    """Make `folder` with `captioner.safetensors` and `README.md`; `called`: by which `checkpoint=` others name it."""
    saved = load(checkpoint)
    config = without_places(saved.config)
    scores = checkpoint.parent.parent / "scores.json"  # of a run folder that this is the best checkpoint of
    record = read_record(scores) if checkpoint.stem == "best" and scores.is_file() else None
    tested = None if record is None else record.scores.get(HEADLINE)
    score = saved.score if tested is None else f"test/{HEADLINE} {SCORES[HEADLINE].printed(tested)}"
    text = card(config, len(saved.words), record, called, licence)
    folder.mkdir(parents=True)
    write_safetensors(folder / FILE, config, saved.words, saved.networks, half, score, saved.quantiles)
    write_text(folder / "README.md", text)


def without_places(config: dict[str, Any]) -> dict[str, Any]:
    """Settings without the folders of this machine: of absolute paths the names are left.

    What lies below `data.root` still does, so that `data.root=FOLDER` moves all of it.
    """

    def named(node: Any) -> Any:
        if isinstance(node, Mapping):
            return {key: named(value) for key, value in node.items()}
        if isinstance(node, list):
            return [named(value) for value in node]
        return Path(node).name if isinstance(node, str) and Path(node).is_absolute() else node

    root = str(config["data"].get("root", ""))
    moved: dict[str, Any] = named(relocate(config, root, Path(root).name) if Path(root).is_absolute() else config)
    return moved


def card(config: Mapping[str, Any], words: int, record: Record | None, called: str, licence: str | None) -> str:
    """Card with the front matter of model cards; `record` is that of the run's test."""
    choices = {"data": "its data set", "model": _class(config["model"]), **(config.get("choices") or {})}
    data, backbone = choices["data"], config["backbone"].get("name") or _class(config["backbone"])
    title = f"{system_name(choices['model'])} on {backbone}"
    found = {name: score for name, score in record.scores.items() if score is not None} if record else {}
    shown = [score for score in SCORES.values() if score.group == MAIN and score.name in found]
    kinds = {score.name: score.name.partition("-")[0].lower() for score in shown}
    about: dict[str, Any] = {"task_type": TASK, "task_name": "image captioning"}
    about |= {"dataset_type": data, "dataset_name": data, "dataset_split": "test"}
    results = [
        EvalResult(**about, metric_type=kind, metric_name=name, metric_value=round(found[name], 1))
        for name, kind in kinds.items()
    ]
    front = ModelCardData(
        license=licence,
        library_name="captioning",
        pipeline_tag=TASK,
        tags=["image-captioning"],
        datasets=[data],
        metrics=list(dict.fromkeys(kinds.values())) or None,
        model_name=title,
        eval_results=results or None,
    )
    parts = [part for section in ("backbone", "model", "decoding") for _, part in each_part("", config[section])]
    modules = {part["_target_"].rpartition(".")[0] for part in parts}
    theirs = ",".join(sorted(name for name in modules if not f"{name}.".startswith("captioning.")))
    table = markdown_table([score.heading for score in shown], [[score.printed(found[score.name]) for score in shown]])
    return CARD.format(
        front=front.to_yaml(),
        title=title,
        version=__version__,
        data=data,
        call=f"checkpoint={called}" + (f" modules=[{theirs}]" if theirs else ""),
        words=words,
        scores=f"Of the test split.\n\n{table}\n\n{_origin(record)}" if record else "It was not tested.",
        settings=yaml.safe_dump({key: config[key] for key in SETTINGS if key in config}, sort_keys=False),
    )


def _origin(record: Record) -> str:
    source = record.provenance
    width = f", width {source.decoding['width']}" if "width" in source.decoding else ""
    facts = {
        "decoded freely": f"`{_class(source.decoding)}`{width}",
        "tokenizer": source.tokenizer,
        "parameters": ", ".join(f"{count:,} {kind}" for kind, count in source.parameters.items()),
        "trained": None if source.seconds_trained is None else f"{source.seconds_trained / 3600:.1f} hours",
        "on": source.device,
        "precision": source.precision,
        "commit": source.commit,
        "digest of the data": source.data_digest,
    }
    return "\n".join(f"- {name}: {fact}" for name, fact in facts.items() if fact)


def _class(part: Mapping[str, Any]) -> str:
    return str(part["_target_"]).rpartition(".")[2]
