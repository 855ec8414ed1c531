"""Run folders written by hand, with photographs and attention whose answers are known."""

import json
import re
from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import yaml
from json_files import write_json
from pictures import plain

from captioning.config.registry import CONF
from captioning.report.comparison import compare_runs, compared_scores, not_told_apart
from captioning.report.figures import as_svg, curves
from captioning.report.page import Table, write_report
from captioning.report.published import published_rows
from captioning.report.runs import find_runs
from captioning.report.section import Section
from captioning.report.systems import group, newest
from captioning.report.tables import TEST_IMAGES
from captioning.runs.evaluation.attention_file import AttentionRecord, write
from captioning.runs.settings import FORMAT

SOFT, HARD = "Show, Attend and Tell, soft", "Show, Attend and Tell, hard"
GREY = 100
# of a 4 x 4 grid: where the mean looks at the first word, the second ...
CORNERS = ((0, 0), (0, 3), (3, 0), (3, 3))
HEAD = (1, 1)  # where the one head looks that is kept beside the mean
REFERENCES = [
    ["a man on a horse", "a man rides"],
    ["two dogs", "dogs play"],
    ["a red bus", "the bus is red"],
]
SAID = ["a man rides", "two dogs play", "a red bus"]
ATTENDS = {"attention entropy": 1.0}
LOGGED = (
    "epoch,seconds,step,train/nll,val/CIDEr,val/nll\n"
    "0,,9,3.0,,\n0,60.0,9,,20.0,2.5\n1,120.0,19,,30.0,2.0\n"
)


def write_run(
    folder,
    model,
    seed=1,
    bleu=17.0,  # None: not tested
    said=SAID,
    ciders=(),
    images=None,  # has `1.png`, `2.png` ... in the order of `said`
    name="flickr8k",
    digest="d1",
    scores=None,
    provenance=None,
    **settings,
):
    """A tested run, or with `bleu=None` one that was not."""
    place = folder / f"{name}-{model}-seed{seed}"
    place.mkdir(parents=True)
    choices = {"model": model, "data": name, "experiment": "unknown", **settings.pop("choices", {})}
    config = {
        "format": FORMAT,
        "choices": choices,
        "model": {"width": len(model), "title": title(choices["model"])},
        "name": name,
        "seed": seed,
        "folder": str(place),
        "test": bleu is not None,
    }
    if images:
        config["data"] = {"root": str(images.parent), "reader": {"root": str(images)}}
    (place / "config.yaml").write_text(yaml.safe_dump(config | settings))
    (place / "metrics.csv").write_text(LOGGED)
    if bleu is None:
        return place
    captions = said if isinstance(said, Mapping) else dict(enumerate(said, 1))
    lines = []
    for number, (i, text) in enumerate(captions.items()):
        line = {"image_id": i, "caption": text, "references": REFERENCES[(i - 1) % 3]}
        line["scores"] = {"CIDEr": ciders[number]} if ciders else {}
        lines.append(json.dumps(line | ({"photograph": f"{i}.png"} if images else {})) + "\n")
    (place / "captions.jsonl").write_text("".join(lines))
    cider = float(np.mean(ciders)) if ciders else 45.0
    found = {"METEOR": 19.0, "ROUGE-L": 40.0, "CIDEr": cider} | (scores or {})
    for n in range(1, 5):
        found |= {f"BLEU-{n}": bleu, f"BLEU-{n} (no brevity penalty)": bleu + 1}
    tested = TEST_IMAGES.get(choices["data"], len(lines))
    known = {
        "data_digest": digest,
        "parameters": {"trainable": 1234567},
        "seconds_to_best": 100.0 + seed,
        "images_tested": tested,
        "images_of_split": tested,
        "signatures": {"CIDEr": "CIDEr|refs:2|lang:en"},
        "device": "a machine",
    }
    record = {"scores": found, "provenance": known | (provenance or {})}
    write_json(place / "scores.json", record)
    return place


def title(model):
    file = CONF / "model" / f"{model}.yaml"
    if not file.is_file():
        return model
    return str(yaml.safe_load(file.read_text())["title"]).partition("${")[0]


def systems_of(runs):
    return group(find_runs(runs)[0])


def section_of(runs, **settings):
    """What a report has on the runs below a folder, all of the same data; no figure is saved."""
    usual = yaml.safe_load((CONF / "report.yaml").read_text())
    found, _ = newest(find_runs(runs)[0])
    for run in found:
        run.add_scores(runs.parent / "cache", [])
    return Section.build("flickr8k", group(found), [], SimpleNamespace(**usual | settings))


def tables_of(text):
    """The tables of a text by the names of their columns: each a dictionary of rows by their first
    cells, and these of cells by columns.
    """
    tables = {}
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.M):
        names, _, *rows = [
            [cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()
        ]
        tables[tuple(names)] = {row[0]: dict(zip(names[1:], row[1:], strict=True)) for row in rows}
    return tables


def write_photographs(root, number, size=(400, 200)):
    for i in range(1, number + 1):
        plain(root / f"{i}.png", size, (GREY, GREY, GREY))
    return root


def looks(place):
    """A map of 4 x 4 with most of its weight at one place, 255 times what is beside it 5 times."""
    found = np.full((4, 4), 5 / 330, np.float32)
    found[place] = 255 / 330
    return found


def keep_maps(run, said, attended=False):
    """`attention.npz` of captions of at most four words: the mean looks into the corners, the head
    beside one.

    With `attended` hard attention has taken the cell of the head each time but the first, when it
    took the corner.
    """
    kept = []
    for i, caption in enumerate(said, start=1):
        words = tuple(caption.split())
        mean = np.stack([looks(corner) for corner, _ in zip(CORNERS, words, strict=False)])
        head = np.stack([looks(HEAD)] * len(words))
        maps = {"mean": mean}
        if attended:
            maps["attended"] = (np.stack([mean[0], *head[1:]]) > 0.5).astype(np.float32)
        kept.append(AttentionRecord(i, words, maps | {"inter 1 1": head}))
    write(run / "attention.npz", kept)


def page_of(runs, output, photographs="auto", drawn=False, **more):
    """What `index.html` of these runs holds, with `drawn` curves, and what was left out of it."""
    systems = systems_of(runs)
    output.mkdir(parents=True, exist_ok=True)
    compared, _ = compare_runs(systems, [])
    scores = compared_scores(systems, compared)
    table = Table(
        "flickr8k",
        systems,
        published_rows({"flickr8k"}, {"sat_soft"}),
        compared,
        scores,
        not_told_apart(compared, scores[0], len(systems)) if scores else [],
        as_svg(curves(systems)) if drawn else b"",
    )
    page = SimpleNamespace(**({"image_size": 200, "embed_mb": 10.0, "heads": 50} | more))
    left_out = write_report(output, [table], None, photographs, page)
    return (output / "index.html").read_text(), left_out
