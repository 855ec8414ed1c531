"""Show where two systems disagree: `captioning compare A B`, run folders or files of captions.

A file is the `captions.jsonl` of a run, or has another layout of captions. Beside scores with
intervals there are the images on which they differ most, the words that one says and the other does
not, and a page of all captions side by side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Self

from pydantic import model_validator

from captioning.config.command import command, start, while_read
from captioning.config.settings import PageSettings, Settings
from captioning.config.types import GivenPath, PathText, Seconds
from captioning.data.readers.groups import LENGTH
from captioning.data.words import Code, Tokens
from captioning.errors import listed, one_line
from captioning.files import write_json
from captioning.metrics import score_called
from captioning.metrics.contrasts import ALPHA, IMAGES_ONLY, Difference
from captioning.metrics.table import MetricName, unsupported_metrics
from captioning.metrics.wording import commonest_caption, disagreements, wording
from captioning.report.compare.pair import Pair
from captioning.report.comparison import comparison_cells, interval_content
from captioning.runs.provenance import file_record
from captioning.runs.settings import is_in


class CompareSettings(Settings):
    """Settings of `captioning compare`."""

    files: Sequence[PathText]
    """two run folders or files of captions; `files=` may be omitted"""
    references: PathText | None
    """COCO's or Karpathy's JSON, a table, a captions.jsonl; null: those in the files"""
    metrics: Sequence[MetricName]
    """scores to compute; []: only scores in both files, without Java"""
    language: Code | None
    """ISO 639-1 code of the captions' language; null: as recorded by the first run, or en"""
    tokens: Tokens | None
    """characters, words or your own function; null: as recorded by the first run, or words"""
    modules: Sequence[str]
    """your own modules that the runs' tokens need"""
    timeout: Seconds
    """seconds without an answer after which a Java scorer is given up"""
    sweep: PathText | None
    """folder of runs of several seeds, for the variance of training; null: images only"""
    score: str | None
    """score of single captions that orders the images; null: CIDEr if there"""
    groups: str | None
    """also scores by group: a key or column of `references`, or length; null: as recorded"""
    common_only: bool
    """true: compare only images that are in both files"""
    output: GivenPath
    """the folder of compare.json and index.html"""
    cache: GivenPath
    """folder of cached scores of single captions, for recorded experiments"""
    images: PathText | None
    """folder of the images for the page; auto: that of each run's data; null: no images"""
    page: PageSettings

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(self.files) != 2:
            raise ValueError(
                "compare takes two run folders or files of captions: captioning compare A B"
            )
        if self.groups not in (None, LENGTH) and self.references is None:
            raise ValueError("groups=COLUMN is a column or key of references=FILE: name that too")
        return self


NAMES = "A", "B"
SHOWN = 3  # captions that are printed
# that captions are compared by, the latter only if both files have them
TERMS = ("words", "hallucinated")
ADVICE = "; sweep=FOLDER takes it from runs of several seeds"
# groups of settings that decide what a comparison of two models may say
UNFAIR = "data", "init_from", "objective", "optimizer", "schedule", "trainer", "decoding"
ROWS, ALONE = 8, 12  # terms that a table has, and names that a line has


@command("compare.yaml", CompareSettings, words="files")
def main(config: CompareSettings) -> None:
    """Read, score, compare, write and print."""
    pair = Pair(config)
    with while_read():
        for name, side in zip(NAMES, pair.sides, strict=True):
            print(f"{name}  {side.label} ({one_line(str(side.file))})", flush=True)
        differing = pair.differing_settings
        if differing:
            print(f"settings that differ, A | B: {settings_line(differing)}")
        for line in unsupported_metrics(config.metrics, pair.language.code):
            print(line)
    output = config.output
    output.mkdir(parents=True, exist_ok=True)
    record = comparison_record(pair)
    write_json(output / "compare.json", record)
    # here, because templates and photographs take a while
    from captioning.report.compare.page import write_comparison

    terms = [name for name in TERMS if name in record]
    left_out = write_comparison(output, pair, record, terms)
    with while_read():
        same, images = record["identical"], record["images"]
        share = f"{same:,} of them ({100 * same / images:.1f} %)"
        print(f"{images:,} images; the caption is the same for {share}")
        print(*(f"warning, {name}: {told}" for name, told in record["warnings"].items()), sep="\n")
        print(record["intervals"] + ("" if config.sweep else ADVICE))
        print(comparison_table(record["scores"], ("", *NAMES)))
        print(record["corrected"]["scores"])
        print("", *pair.signatures.values(), sep="\n")
        print_images(pair, pair.names[0])
        for name in terms:
            print_terms(name, record)
        for line in left_out:
            print(f"left out: {line}")
        print(f"\n{output / 'compare.json'}\n{output / 'index.html'}")


def settings_line(differing: Mapping[str, tuple[str, str]]) -> str:
    """What may make a comparison unfair, then how many settings of the model differ."""
    texts = {key: f"{one_line(key)} {a} | {b}" for key, (a, b) in differing.items()}
    model = [texts.pop(key) for key in differing if is_in(key, ["model"])]
    if not texts:
        return listed(model, ALONE)
    groups = [key.partition(".")[0] for key in texts]
    ranks = [UNFAIR.index(name) if name in UNFAIR else len(UNFAIR) for name in groups]
    ordered = [text for _, text in sorted(zip(ranks, texts.values(), strict=True))]
    if model:
        ordered[-1] += f"; and {len(model)} of the model"
    return ", ".join(ordered)


def comparison_record(pair: Pair) -> dict[str, Any]:
    """The content of `compare.json`; wording but for the length is without intervals."""
    differences = pair.compare()
    scores: dict[str, Any] = {name: asdict(row) for name, row in differences.items()}
    ours, theirs = (wording(words, pair.language.code) for words in pair.words)
    for name, one in ours.items():
        plain = {"ours": one, "theirs": theirs[name], "difference": one - theirs[name]}
        scores.setdefault(name, plain)
    record: dict[str, Any] = {
        "files": [file_record(side.file) for side in pair.sides],
        "settings": pair.differing_settings,
        "images": len(pair.references),
        "warnings": {
            name: told
            for name, records in zip(NAMES, pair.records, strict=True)
            if (told := commonest_caption([r.caption for r in records], pair.references.values()))
        },
        "identical": sum(one == other for one, other in zip(*pair.words, strict=True)),
        "sweep": pair.config.sweep,
        "signatures": pair.signatures,
        "scores": scores,
        "intervals": interval_content({(0, 1): differences}),
        "corrected": {"scores": corrected_sentence(differences, "scores")},
    }
    named = [[record.hallucinated for record in records] for records in pair.records]
    terms: list[Any] = [pair.words, named]
    for name, (first, second) in zip(TERMS, terms, strict=True):
        if None not in (*first, *second):
            rows = disagreements(first, second)
            record[name] = {term: asdict(row) for term, row in rows.items()}
            record["corrected"][name] = corrected_sentence(rows, name)
    return record


def corrected_sentence(rows: Mapping[str, Difference], what: str) -> str:
    """Name the rows of a comparison that are told apart after Holm's correction for all of them."""
    apart = listed([name for name, row in rows.items() if row.told_apart], ALONE)
    return (
        f"After Holm's correction for {len(rows):,} {what}, p is below {ALPHA:g} for "
        f"{apart or 'none'}"
    )


def comparison_table(
    rows: Mapping[str, Mapping[str, Any]], heads: Sequence[str], digits: int | None = None
) -> str:
    """Format numbers of two systems, below `heads` of the names and the systems, for a terminal."""
    cells = [(*heads, "difference", "95 % interval", "p"), *comparison_cells(rows, digits)]
    width = max(36, *(len(row[0]) for row in cells))
    form = "{:>7}{:>8}{:>12}{:>18}{:>8}"
    return "\n".join(row[0].ljust(width) + form.format(*row[1:]).rstrip() for row in cells)


def print_images(pair: Pair, name: str) -> None:
    """Print the images on which the sides differ most by a score."""
    score = score_called(name)
    rows = list(zip(pair.references.items(), *pair.records, strict=True))
    scores = [(ours.scores.get(name), theirs.scores.get(name)) for _, ours, theirs in rows]
    gaps = [0.0 if ours is None or theirs is None else ours - theirs for ours, theirs in scores]
    for side, sign in zip(NAMES, (1, -1), strict=True):
        higher = [row for row, gap in enumerate(gaps) if sign * gap > 0]
        heading = f"{score.heading} is higher for {side} on {len(higher):,} of {len(rows):,} images"
        print(f"\n{heading}, most of all on" if higher else f"\n{heading}")
        for row in sorted(higher, key=lambda row: -sign * gaps[row])[:SHOWN]:
            (image, references), *records = rows[row]
            print(f"\nimage {one_line(str(image))}: {gaps[row]:+.{score.digits}f}")
            for letter, record in zip(NAMES, records, strict=True):
                value = score.printed(record.scores[name] or 0)
                print(f"    {letter} {value:>6}  {one_line(record.caption)}")
            for reference in references[:1]:
                print(f"    {one_line(f'reference: {reference}')}")


def print_terms(title: str, record: Mapping[str, Any]) -> None:
    """Print the terms whose numbers of images differ most, and those of one side alone."""
    rows = record[title]
    if rows:
        print(f"\n{title}: 95 % intervals of the number of images, {IMAGES_ONLY}")
        print(record["corrected"][title])
    for side, other, sign in (("A", "theirs", 1), ("B", "ours", -1)):
        more = {one_line(term): row for term, row in rows.items() if sign * row["difference"] > 0}
        alone = [
            f"{term} {abs(row['difference']):.0f}" for term, row in more.items() if not row[other]
        ]
        if more:
            header = (f"{title} in more captions of {side}", *NAMES)
            print(f"\n{comparison_table(dict(list(more.items())[:ROWS]), header, digits=0)}")
        if alone:
            print(f"{title} in captions of {side} alone, {len(alone):,}: {listed(alone, ALONE)}")


if __name__ == "__main__":
    start(main)
