"""The card of a captioner: what it was trained on, what it scores, where it fails, how it was set.

With the front matter of the Hugging Face Hub (huggingface.co/docs/hub/model-cards), scores as its `model-index`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from captioning import __version__
from captioning.config.settings import targets
from captioning.report.markdown import markdown_table
from captioning.report.names import system_name
from captioning.report.reading import Record
from captioning.report.table import SCORES
from captioning.report.units import headed, printed

TASK = "image-to-text"
SECTIONS = ("seed", "data", "backbone", "model", "objective", "optimizer", "schedule", "trainer", "decoding")
CARD = """---
{front}---

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

- It says its {words:,} words and no others. What a photograph shows beyond them it leaves out, or calls something else.
- It knows photographs and captions like those of {data}. Of others it writes as fluently, and often wrongly; the score
  beside a caption does not tell which.
- It repeats what annotators wrote, their guesses at people's sex, age and doings among it. No decision about a person
  can rest on a caption.

## Settings

```yaml
{settings}```
"""


def card(
    config: Mapping[str, Any], words: Sequence[str], record: Record | None, called: str, licence: str | None
) -> str:
    """The card as Markdown.

    Args:
        config: the resolved configuration of the run, plain values.
        words: of the vocabulary.
        record: of its test; None where there was none.
        called: what `checkpoint=` is for those who use it.
        licence: of the weights, by the hub's name for it; None where that is not said.
    """
    choices = {"data": "its data set", "model": _last(config["model"]), **(config.get("choices") or {})}
    data, backbone = choices["data"], config["backbone"].get("name") or _last(config["backbone"])
    title = f"{system_name(choices['model'])} on {backbone}"
    found = record.scores if record else {}
    scores = {name: score for name in SCORES if (score := found.get(name)) is not None}
    used = (name for section in ("backbone", "model", "decoding") for name in targets(config[section]))
    theirs = sorted({name.rpartition(".")[0] for name in used if not name.startswith("captioning.")})
    return CARD.format(
        front=yaml.safe_dump(_front(title, data, scores, licence), sort_keys=False),
        title=title,
        version=__version__,
        data=data,
        call=f"checkpoint={called}" + (f" modules=[{','.join(theirs)}]" if theirs else ""),
        words=len(words),
        scores=_tested(record, scores) if record else "It was not tested.",
        settings=yaml.safe_dump({key: config[key] for key in SECTIONS if key in config}, sort_keys=False),
    )


def _front(title: str, data: str, scores: Mapping[str, float], licence: str | None) -> dict[str, Any]:
    kinds = {name: name.partition("-")[0].lower() for name in scores}
    tested = {
        "task": {"type": TASK, "name": "image captioning"},
        "dataset": {"type": data, "name": data, "split": "test"},
        "metrics": [{"type": kinds[name], "name": name, "value": round(score, 1)} for name, score in scores.items()],
    }
    return {
        **({"license": licence} if licence else {}),
        "library_name": "captioning",
        "pipeline_tag": TASK,
        "tags": ["image-captioning"],
        "datasets": [data],
        **({"metrics": list(dict.fromkeys(kinds.values()))} if scores else {}),
        **({"model-index": [{"name": title, "results": [tested]}]} if scores else {}),
    }


def _tested(record: Record, scores: Mapping[str, float]) -> str:
    """A table, and how its numbers came about."""
    source = record.provenance
    width = f", width {source.decoding['width']}" if "width" in source.decoding else ""
    facts = {
        "decoded freely": f"`{_last(source.decoding)}`{width}",
        "tokenizer": source.tokenizer,
        "parameters": ", ".join(f"{count:,} {kind}" for kind, count in source.parameters.items()),
        "trained": None if source.seconds_trained is None else f"{source.seconds_trained / 3600:.1f} hours",
        "on": source.device,
        "precision": source.precision,
        "commit": source.commit,
        "digest of the data": source.data_digest,
    }
    told = "\n".join(f"- {name}: {fact}" for name, fact in facts.items() if fact)
    table = markdown_table([*map(headed, scores)], [[printed(name, score) for name, score in scores.items()]])
    return f"Of the test split.\n\n{table}\n\n{told}"


def _last(part: Mapping[str, Any]) -> str:
    """What a part of the configuration is called in its module."""
    return str(part.get("_target_", "")).rpartition(".")[2]
