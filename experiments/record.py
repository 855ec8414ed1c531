"""Write runs as records: only what cannot be recomputed.

    python experiments/record.py RUNS RECORD [MAPS] [bare]

Every folder below RUNS with test captions becomes a folder of the same name below RECORD:

- `config.yaml`, with lists and the smallest groups in one line; `scores.json` without indents,
  which names the file of references;
- `captions.jsonl.gz` with image ids and captions, and those scores of single captions that the
  Scorer does not reproduce;
- `metrics.csv` with every validation, and the training values that the curves need;
- with MAPS, `attention.npz` with the mean map of that many captions.

References and image names are written once per test split, as `references/DIGEST.jsonl.gz` in the
folder of RECORD. With `bare`, for data that may not be published, they are left out, and captions
keep all their scores. RUNS and RECORD may be the same folder, whose files stay until new ones are
whole.
"""

import csv
import gzip
import hashlib
import io
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from captioning.data.readers.captions import REFERENCES, CaptionRecord, references_name
from captioning.data.words import Language
from captioning.errors import one_line
from captioning.files import atomic_write, read_gzip, to_json, write_text
from captioning.report.maps import ATTENDED
from captioning.report.runs import SPEED
from captioning.runs.evaluation import attention_file
from captioning.runs.evaluation.captions import FILE, RECORDED, add_scores, read_records
from captioning.runs.folders.history import read_history
from captioning.runs.settings import read_settings

LOSS = "train/nll"
PLACE = ("epoch", "step", "seconds")


def main(runs: Path, record: Path, maps: int = 0, bare: bool = False) -> None:
    """Write the records, and print what each run took before and takes now."""
    references = None if bare else record.parent / REFERENCES
    for source in sorted({file.parent for file in runs.rglob(f"{FILE}*")}):
        target = record / source.relative_to(runs)
        before = size(source)
        write_record(source, target, references, maps)
        print(f"{one_line(str(target))}: {before:,} -> {size(target):,} bytes", flush=True)


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


def write_record(source: Path, target: Path, references: Path | None, maps: int) -> None:
    """Write one run's record; nothing is changed before all of it was read.

    Without a folder for `references`, captions keep their scores instead.
    """
    config = source / "config.yaml"
    settings = read_settings(config) if config.exists() else {}
    scores = json.loads((source / "scores.json").read_text())
    lines = read_records(source)
    single = [line.scores for line in lines]
    if references:
        language = Language.of(settings.get("data", {}), ())
        single = list(own_scores(lines, list(scores["scores"]), language, Path("cache")))
    thinned = thin(read_history(source))
    kept = read_maps(source / attention_file.FILE, maps)

    target.mkdir(parents=True, exist_ok=True)
    if references:
        scores["provenance"][REFERENCES] = write_references(references, lines)
    write_text(target / "scores.json", to_json(scores, indent=0) + "\n")
    text = "".join(to_line(*both) for both in zip(lines, single, strict=True))
    write_gzip(target / RECORDED, text)
    (target / FILE).unlink(missing_ok=True)
    if thinned:
        write_text(target / "metrics.csv", as_csv(thinned))
    if settings:
        style = {"default_flow_style": None, "sort_keys": False, "width": 100}
        write_text(target / config.name, yaml.safe_dump(settings, **style, allow_unicode=True))
    if kept:
        attention_file.write(target / attention_file.FILE, kept)
    else:
        (target / attention_file.FILE).unlink(missing_ok=True)


def write_gzip(path: Path, text: str) -> None:
    """Compress a text to the same bytes each time."""
    with atomic_write(path) as file:
        file.write(gzip.compress(text.encode(), mtime=0))


def write_references(folder: Path, lines: Sequence[CaptionRecord]) -> dict[str, str]:
    """Write the references of a split, unless a file in the folder has them; return its name and
    digest.
    """
    images = {line.image_id: line for line in lines}
    for file in sorted(folder.glob("*.jsonl.gz")):
        content = read_gzip(file).decode()
        held = {
            each["image_id"]: (each["references"], each.get("group", ""))
            for each in map(json.loads, content.splitlines())
        }
        if all(held.get(i) == (line.references, line.group) for i, line in images.items()):
            return file_of(file, content)
    entries = [
        {"image_id": line.image_id, "references": line.references}
        | ({"photograph": line.photograph} if line.photograph else {})
        | ({"group": line.group} if line.group else {})
        for line in images.values()
    ]
    content = "".join(to_json(entry, ensure_ascii=False) + "\n" for entry in entries)
    file = folder / references_name(hashlib.sha256(content.encode()).hexdigest())
    folder.mkdir(exist_ok=True)
    write_gzip(file, content)
    return file_of(file, content)


def file_of(file: Path, content: str) -> dict[str, str]:
    return {
        "file": f"{REFERENCES}/{file.name}",
        "sha256": hashlib.sha256(content.encode()).hexdigest(),
    }


def own_scores(
    lines: Sequence[CaptionRecord], names: Sequence[str], language: Language, cache: Path
) -> Iterator[Mapping[str, float | None]]:
    """Of each caption the scores that are not computed again, to 1e-12 of their value.

    The last digit of a power depends on the CPU, and the first records rounded theirs to four
    digits.
    """
    bare = [line.model_copy(update={"scores": {}}) for line in lines]
    add_scores(bare, names, language, cache)
    for line, again in zip(lines, bare, strict=True):
        yield {
            name: score
            for name, score in line.scores.items()
            if not same(score, again.scores.get(name))
        }


def same(score: float | None, again: float | None) -> bool:
    if score is None or again is None:
        return score is again
    return math.isclose(score, again, rel_tol=1e-12) or score == round(again, 4)


def to_line(line: CaptionRecord, scores: Mapping[str, float | None]) -> str:
    entry: dict[str, Any] = {"image_id": line.image_id, "caption": line.caption}
    entry |= {"alternatives": line.alternatives} if line.alternatives else {}
    entry |= {"scores": scores} if scores else {}
    entry |= {"hallucinated": line.hallucinated} if line.hallucinated is not None else {}
    return to_json(entry, ensure_ascii=False, separators=(",", ":")) + "\n"


def thin(history: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """Keep validations, and one row for the training before each: the mean loss, which curves show.

    The last row has the mean of all speeds, which tables show.
    """
    rows: list[dict[str, float]] = []
    since: list[Mapping[str, float]] = []
    for row in history:
        validated = "val/nll" in row
        if since and (validated or (LOSS in row and row.get("epoch") != since[-1]["epoch"])):
            place = {name: since[-1][name] for name in PLACE if name in since[-1]}
            rows.append(place | {LOSS: fmean(each[LOSS] for each in since)})
            since = []
        if LOSS in row and "epoch" in row:
            since.append(row)
        shown = {
            name: value for name, value in row.items() if name in PLACE or name.startswith("val/")
        }
        if shown.keys() - {"epoch", "step"}:
            rows.append(shown)
    speeds = [row[SPEED] for row in history if SPEED in row]
    if speeds and rows:
        rows[-1][SPEED] = fmean(speeds)
    return rows


def as_csv(rows: Sequence[Mapping[str, float]]) -> str:
    """Write whole numbers without a fraction, and others with the seven digits of a float32."""
    names = list(dict.fromkeys((*PLACE, *sorted({name for row in rows for name in row}))))
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(names)
    for row in rows:
        table.writerow([_shown(name, row[name]) if name in row else "" for name in names])
    return text.getvalue()


def _shown(name: str, value: float) -> str:
    return f"{value:.0f}" if name in ("epoch", "step") else str(float(f"{value:.7g}"))


def read_maps(file: Path, number: int) -> list[attention_file.AttentionRecord]:
    """The mean map, and that of the attended locations, of the first captions of a file."""
    found = attention_file.read(file)[:number] if number and file.exists() else []
    shown = ("mean", ATTENDED)
    return [
        attention_file.AttentionRecord(
            each.image_id,
            each.words,
            {name: each.maps[name] for name in shown if name in each.maps},
            each.labels,
        )
        for each in found
    ]


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[3:] if text != "bare"]
    main(Path(sys.argv[1]), Path(sys.argv[2]), *numbers, bare="bare" in sys.argv[3:])
