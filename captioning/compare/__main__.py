"""Show where two systems disagree: `python -m captioning.compare A B`, run folders or files of
captions.

A file is the `captions.jsonl` of a run, or has COCO's results format. Beside scores with intervals
there are the images on which they differ most, the words that one says and the other does not, and
a page of all captions side by side.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Self

from annotated_types import Interval
from omegaconf import DictConfig, OmegaConf
from pydantic import model_validator

from captioning.compare.pair import Pair
from captioning.config.command import command, start, while_read
from captioning.config.registry import CONF
from captioning.config.settings import Settings
from captioning.config.types import PathText, Samples, Seconds, Seed
from captioning.data.words import Code, Tokens
from captioning.download.named import given_path
from captioning.errors import listed, one_line
from captioning.files import write_json
from captioning.metrics import score_called
from captioning.metrics.bootstrap import paired
from captioning.metrics.statistics import Statistics
from captioning.metrics.table import MetricName, unsupported_metrics
from captioning.metrics.wording import disagreements, wording
from captioning.report.tables import SHOWN, comparison_table
from captioning.runs.results import file_record


class PageSettings(Settings):
    """Settings below `page`."""

    image_size: Annotated[int, Interval(ge=32, le=2048)]
    """pixels of the longer side of a photograph in index.html"""
    embed_mb: Annotated[float, Interval(ge=0, le=1000)]
    """MB of photographs in index.html; more lie in photographs/ beside it"""


class BootstrapSettings(Settings):
    """Settings below `bootstrap`."""

    samples: Samples
    """resampled sets of images"""
    seed: Seed
    """of the samples"""


class CompareSettings(Settings):
    """Settings of `captioning compare`."""

    files: Sequence[PathText]
    """the two of them; or without files="""
    references: PathText | None
    """a COCO annotation file or a captions.jsonl; null: those in the files"""
    objects: PathText | None
    """COCO's instances_val2014.json: also CHAIR, the objects that are not there"""
    metrics: Sequence[MetricName]
    """are computed for both; []: the scores that both files have, without Java"""
    language: Code | None
    """of the captions, ISO 639-1; null: as the first run has recorded it, or en"""
    tokens: Tokens | None
    """characters, or a function of yours; null: the same, or words"""
    modules: Sequence[str]
    """of yours that a run's tokens name"""
    timeout: Seconds
    """seconds that a Java scorer may take, again for every 500 captions"""
    score: str | None
    """of single captions, by which the images are ordered; null: CIDEr if there"""
    common_only: bool
    """true: compare the images that both files have"""
    output: PathText
    """the folder of compare.json and index.html"""
    cache: PathText
    """where scores of single captions are kept, of recorded experiments"""
    photographs: PathText | None
    """their folder for the page; auto: that of each run's data; null: none"""
    page: PageSettings
    bootstrap: BootstrapSettings

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(self.files) != 2:
            raise ValueError(
                "compare takes two run folders or files of captions: captioning compare A B"
            )
        if self.objects is not None and not self.metrics:
            raise ValueError("objects=FILE is scored beside metrics: name one of them")
        return self


NAMES = "A", "B"
TERMS = (
    "words",
    "hallucinated",
)  # that captions are compared by, the latter only if both files have them
ROWS, ALONE = 8, 12
"""Terms that a table has, and those of one side alone that are listed."""


@command(CONF / "compare.yaml", CompareSettings, words="files")
def main(config: DictConfig) -> None:
    """Read, score, compare, write and print."""
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # file names need not be text
    metrics: Any = OmegaConf.to_container(config.metrics)
    written = config.language, config.tokens, list(config.modules), given_path(config.cache)
    pair = Pair(config.files, config.references, bool(metrics), config.common_only, *written)
    with while_read():
        for name, side in zip(NAMES, pair.sides, strict=True):
            print(f"{name}  {side.short} ({one_line(str(side.file))})", flush=True)
        if pair.differing_settings:
            both = [
                f"{one_line(key)} {ours} | {theirs}"
                for key, (ours, theirs) in pair.differing_settings.items()
            ]
            print(f"settings that differ, A | B: {listed(both, ALONE)}")
        for line in unsupported_metrics(metrics, pair.language.code):
            print(line)
    statistics = pair.score(metrics, config.timeout, config.objects, config.score)
    record = compared(pair, statistics, **config.bootstrap)
    output = given_path(config.output)
    output.mkdir(parents=True, exist_ok=True)
    write_json(output / "compare.json", record)
    from captioning.compare.page import (
        write_page,
    )  # here, because templates and photographs take a while

    terms = [name for name in TERMS if name in record]
    write_page(output, pair, record, terms, config.photographs, **config.page)
    with while_read():
        share = (
            f"{record['identical']:,} of them ({100 * record['identical'] / record['images']:.1f} "
            "%)"
        )
        print(f"{record['images']:,} images; the caption is the same for {share}\n")
        print(comparison_table(record["scores"], ("", *NAMES)))
        print("", *pair.signatures.values(), sep="\n")
        print_images(pair, pair.names[0])
        for name in terms:
            print_terms(name, record[name])
        print(f"\n{output / 'compare.json'}\n{output / 'index.html'}")


def compared(
    pair: Pair, statistics: Sequence[Sequence[Statistics]], samples: int, seed: int
) -> dict[str, Any]:
    """The content of `compare.json`; wording but for the length is without intervals."""
    words: Sequence[Sequence[Sequence[str]]] = [
        [line.words for line in lines] for lines in pair.lines
    ]
    named = [
        [line.hallucinated for line in lines if line.hallucinated is not None]
        for lines in pair.lines
    ]
    one, other = statistics
    scores = {name: asdict(each) for name, each in paired(one, other, samples, seed).items()}
    ours, theirs = (wording(said, pair.language.code) for said in words)
    for name, each in ours.items():
        scores.setdefault(
            name, {"ours": each, "theirs": theirs[name], "difference": each - theirs[name]}
        )
    record: dict[str, Any] = {
        "files": [file_record(side.file) for side in pair.sides],
        "settings": pair.differing_settings,
        "images": len(pair.references),
        "identical": sum(one == other for one, other in zip(*words, strict=True)),
        **{"samples": samples, "seed": seed, "signatures": pair.signatures, "scores": scores},
    }
    for name, (first, second) in zip(TERMS, (words, named), strict=True):
        if len(first) == len(second) == len(pair.references):
            record[name] = {
                term: asdict(each)
                for term, each in disagreements(first, second, samples, seed).items()
            }
    return record


def print_images(pair: Pair, name: str) -> None:
    """Print the images on which the sides differ most by a score."""
    score = score_called(name)
    rows = list(zip(pair.references.items(), *pair.lines, strict=True))
    scores = [(ours.scores.get(name), theirs.scores.get(name)) for _, ours, theirs in rows]
    gaps = [0.0 if ours is None or theirs is None else ours - theirs for ours, theirs in scores]
    for side, sign in zip(NAMES, (1, -1), strict=True):
        higher = [place for place, gap in enumerate(gaps) if sign * gap > 0]
        told = f"{score.heading} is higher for {side} on {len(higher):,} of {len(rows):,} images"
        print(f"\n{told}, most of all on" if higher else f"\n{told}")
        for place in sorted(higher, key=lambda place: -sign * gaps[place])[:SHOWN]:
            (image, references), *lines = rows[place]
            print(f"\nimage {one_line(str(image))}: {gaps[place]:+.{score.digits}f}")
            for each, line in zip(NAMES, lines, strict=True):
                print(
                    f"    {each} {score.printed(line.scores[name] or 0):>6}  "
                    f"{one_line(line.caption)}"
                )
            print(
                "".join(
                    f"    {one_line(f'reference: {reference}')}\n" for reference in references[:1]
                ),
                end="",
            )


def print_terms(title: str, found: Mapping[str, Mapping[str, float]]) -> None:
    """Print the terms whose numbers of images differ most, and those of one side alone."""
    for side, never, sign in (("A", "theirs", 1), ("B", "ours", -1)):
        more = {one_line(term): row for term, row in found.items() if sign * row["difference"] > 0}
        alone = [
            f"{term} {abs(row['difference']):.0f}" for term, row in more.items() if not row[never]
        ]
        if more:
            table = dict(list(more.items())[:ROWS])
            header = (f"{title} in more captions of {side}", *NAMES)
            print(f"\n{comparison_table(table, header, digits=0)}")
        if alone:
            print(f"{title} in captions of {side} alone, {len(alone):,}: {listed(alone, ALONE)}")


if __name__ == "__main__":
    start(main)
